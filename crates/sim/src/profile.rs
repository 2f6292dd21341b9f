//! Profiles: which faults a seed has, and how often. A seed draws its own (swarm), or one is given by name.

use crate::rng::Draw;

/// Kinds of events, each with its family. A family that never fires in a long run is a failure of the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Crash,
    Conflict,
    Process,
    Disk,
    Time,
    Model,
    People,
    Service,
    Tamper,
}

impl Family {
    pub const ALL: &'static [Self] = &[
        Self::Crash,
        Self::Conflict,
        Self::Process,
        Self::Disk,
        Self::Time,
        Self::Model,
        Self::People,
        Self::Service,
        Self::Tamper,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Conflict => "conflict",
            Self::Process => "process",
            Self::Disk => "disk",
            Self::Time => "time",
            Self::Model => "model",
            Self::People => "people",
            Self::Service => "service",
            Self::Tamper => "tamper",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|family| family.as_str() == text)
    }
}

/// How often each family fires, in a thousand events; 0 switches it off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    rates: [u32; Family::ALL.len()],
    pub agents: usize,
    /// Whether agents ask before they change anything.
    pub reviewed: bool,
}

impl Profile {
    /// The seed picks its families and their rates, spread over the orders of magnitude.
    #[must_use]
    pub fn swarm(seed: u64, allowed: &[Family]) -> Self {
        let mut draw = Draw::new(seed, 1, 0);
        let mut rates = [0; Family::ALL.len()];
        for (place, family) in Family::ALL.iter().enumerate() {
            let on = draw.chance(650);
            let rate = [2, 5, 12, 30, 80, 150][draw.below(6)];
            if on && allowed.contains(family) {
                rates[place] = rate;
            }
        }
        Self { rates, agents: 1 + draw.below(3), reviewed: draw.chance(400) }
    }

    #[must_use]
    pub fn rate(&self, family: Family) -> u32 {
        let place = Family::ALL.iter().position(|known| *known == family);
        place.map_or(0, |place| self.rates[place])
    }

    /// The same without faults, for the time after the world has healed.
    #[must_use]
    pub fn calm(&self) -> Self {
        Self { rates: [0; Family::ALL.len()], ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_its_profile_from_itself_and_only_from_what_is_allowed() {
        assert_eq!(Profile::swarm(7, Family::ALL), Profile::swarm(7, Family::ALL));
        for seed in 0..200 {
            let profile = Profile::swarm(seed, &[Family::Crash, Family::Time]);
            let on = Family::ALL.iter().copied().filter(|family| profile.rate(*family) > 0);
            assert!(on.clone().all(|family| [Family::Crash, Family::Time].contains(&family)), "seed {seed}");
            assert!((1..=3).contains(&profile.agents), "seed {seed}");
        }
    }

    #[test]
    fn forbidding_a_family_leaves_the_others_as_they_were() {
        let without_time: Vec<Family> = Family::ALL.iter().copied().filter(|family| *family != Family::Time).collect();
        for seed in 0..200 {
            let (all, fewer) = (Profile::swarm(seed, Family::ALL), Profile::swarm(seed, &without_time));
            assert!(without_time.iter().all(|family| all.rate(*family) == fewer.rate(*family)), "seed {seed}");
            assert_eq!((all.agents, all.reviewed), (fewer.agents, fewer.reviewed), "seed {seed}");
        }
    }

    #[test]
    fn over_many_seeds_every_family_is_on_and_off_at_every_rate() {
        for family in Family::ALL {
            let mut rates: Vec<u32> = (0..500).map(|seed| Profile::swarm(seed, Family::ALL).rate(*family)).collect();
            rates.sort_unstable();
            rates.dedup();
            assert_eq!(rates, [0, 2, 5, 12, 30, 80, 150], "{family:?}");
            assert_eq!(Profile::swarm(1, Family::ALL).calm().rate(*family), 0);
            assert_eq!(Family::parse(family.as_str()), Some(*family));
        }
    }
}
