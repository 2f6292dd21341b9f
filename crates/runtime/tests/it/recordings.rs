//! Recordings that were damaged by chance or by hand: whatever they hold, the answer is one of the known ones.

use std::path::Path;

use domain::code::ErrorCode;
use runtime::{Replayed, replay_text};

/// LIMIT: changes of each recording; a run of this test takes about a second.
const CHANGES: u64 = 30;

/// A small generator (splitmix64), so that what is changed is a function of the seed.
fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn l34_a_damaged_recording_is_never_taken_for_a_sound_one_and_never_stops_the_replay() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/tests/corpus/v1");
    let mut answers = [0_u32; 4];
    for entry in std::fs::read_dir(folder).expect("the corpus is in the tree") {
        let path = entry.expect("the corpus can be listed").path();
        let text = std::fs::read_to_string(&path).expect("the corpus can be read");
        for change in 0..CHANGES {
            let seed = mixed(change ^ text.len() as u64);
            let damaged = damaged(&text, seed);
            let answer = match replay_text(&damaged, "damaged") {
                Ok(Replayed::Identical { .. }) => 0,
                Ok(Replayed::Diverged { .. }) => 1,
                Ok(Replayed::OtherBehaviour { .. } | Replayed::Erased { .. }) => 2,
                Err(error) => {
                    assert_eq!(error.code, ErrorCode::RecordingDamaged, "{} with seed {seed}: {error}", path.display());
                    3
                }
            };
            // A digit of the heading may name another version, and a letter of what nobody looks at changes nothing; both are rare.
            answers[answer] += 1;
        }
    }
    println!("identical {}, diverged {}, unverifiable {}, damaged {}", answers[0], answers[1], answers[2], answers[3]);
    let all: u32 = answers.iter().sum();
    assert!(answers[0] * 5 < all, "most changes are noticed: {answers:?}");
    assert!(answers[1] > 0 && answers[3] > 0, "{answers:?}");
}

/// Cuts the text, or changes one letter or digit of it into another.
fn damaged(text: &str, seed: u64) -> String {
    let at = usize::try_from(mixed(seed) % text.len() as u64).expect("a recording is short");
    if seed.is_multiple_of(8) {
        return text.chars().take(at).collect();
    }
    let mut bytes = text.as_bytes().to_vec();
    let place = bytes.iter().skip(at).position(u8::is_ascii_alphanumeric).map_or(0, |skipped| at + skipped);
    bytes[place] = match bytes[place] {
        b'9' => b'0',
        b'z' => b'a',
        b'Z' => b'A',
        letter => letter + 1,
    };
    String::from_utf8(bytes).expect("one letter became another")
}
