//! The inbox as people look at it: everything that waits for their answer, and what became of the rest (L36).

use control::proposal::Proposal;
use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{PromptItemId, PromptResponseId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptResponse, PromptState, Verdict};
use domain::time::Timestamp;
use store::store::{Direction, PageKey, Scan};

use crate::house::{Held, House, held};
use crate::operation::ClientKey;
use crate::pages::{self, checked_limit};
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRecord {
    pub id: PromptItemId,
    pub version: u64,
    pub workspace: WorkspaceId,
    /// The item as it stands now: one that nobody answered in time is expired, whether or not that was written down.
    pub item: PromptItem,
    /// The answer, once there is one.
    pub response: Option<PromptResponse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPage {
    pub items: Vec<PromptRecord>,
    /// What to pass as `after` for the next page.
    pub next: Option<String>,
}

impl House {
    pub fn prompt(&self, id: PromptItemId) -> Result<PromptRecord> {
        let known: Option<Held<PromptItem>> = self.held(Domain::Agent, &id.raw())?;
        let known = known.ok_or_else(|| Error::new(ErrorCode::PromptNotFound, format!("there is no {id}")))?;
        self.prompt_record(id, known)
    }

    /// What the agent said a question is about; nothing for an approval, and where the run's cycle is gone.
    pub fn prompt_context(&self, record: &PromptRecord) -> Result<String> {
        if record.item.gates.is_some() {
            return Ok(String::new());
        }
        let cycles = self.cycles(&record.item.run_id)?;
        let asked = cycles
            .iter()
            .find(|cycle| cycle.actions().iter().any(|action| PromptItemId::of_operation(&action.operation_id) == record.id));
        let decoded = asked.and_then(|cycle| cycle.decided.as_ref()).and_then(|decided| decided.decoded.as_ref());
        let context = decoded.and_then(|decoded| {
            decoded.proposals.iter().find_map(|proposal| match proposal {
                Proposal::RequestUserInput { context, .. } => Some(context.clone()),
                _ => None,
            })
        });
        Ok(context.unwrap_or_default())
    }

    /// The items of a state: open ones by when they expire, the others with the latest first.
    pub fn prompts(&self, state: PromptState, limit: usize, after: Option<&str>) -> Result<PromptPage> {
        let late = Value::Integer(self.now().as_ms().saturating_add(1));
        let (mut items, mut more) = match state {
            PromptState::Open => self.stored_prompts(state, (Some(late), None), limit, after)?,
            PromptState::Answered | PromptState::Withdrawn => self.stored_prompts(state, (None, None), limit, after)?,
            PromptState::Expired => {
                // What is too late and not yet written down as that: whoever only looks cannot write.
                let (mut items, more) = self.stored_prompts(PromptState::Open, (None, Some(late)), limit, after)?;
                let (stored, more_stored) = self.stored_prompts(state, (None, None), limit, after)?;
                items.extend(stored);
                items.sort_by_key(|record| std::cmp::Reverse((record.item.required_by, record.id)));
                (items, more || more_stored)
            }
        };
        more |= items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| {
            let values = vec![Value::Integer(last.item.required_by.as_ms())];
            pages::token(&PageKey { values, id: last.id.raw() }, PromptItemId::PREFIX)
        });
        Ok(PromptPage { items, next })
    }

    /// Items as they are stored, between two instants of expiry, and whether there are more.
    fn stored_prompts(
        &self,
        state: PromptState,
        (from, to): (Option<Value>, Option<Value>),
        limit: usize,
        after: Option<&str>,
    ) -> Result<(Vec<PromptRecord>, bool)> {
        let prefix = vec![Value::from(state.as_str())];
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.after = after.map(|after| pages::key(prefix.clone(), after, PromptItemId::PREFIX)).transpose()?;
        scan.prefix = prefix;
        scan.direction = if from.is_some() { Direction::Forward } else { Direction::Backward };
        (scan.from, scan.to) = (from, to);
        scan.limit = checked_limit(limit)?;
        let page = self.page(Domain::Agent, &scan)?;
        let mut items = Vec::new();
        for row in &page.rows {
            let Some(item) = held::<PromptItem>(row)? else { continue };
            items.push(self.prompt_record(PromptItemId::from_raw(row.id), item)?);
        }
        Ok((items, page.next.is_some()))
    }

    /// A person's reply to a question: it says something, and where there is a choice it is one of the options.
    pub fn reply(&mut self, id: PromptItemId, text: &str, key: &ClientKey) -> Result<()> {
        let options = self.prompt(id)?.item.options;
        if !self.was_done(Domain::Agent, key)? {
            if text.trim().is_empty() {
                return Err(Error::argument("text", "a reply says something; `deny` is the way to give none"));
            }
            if !options.is_empty() && !options.iter().any(|option| option == text) {
                return Err(Error::argument("text", &format!("it is none of the options: {}", options.join(" | "))));
            }
        }
        self.answer(id, Verdict::Reply, text, key)
    }

    fn prompt_record(&self, id: PromptItemId, known: Held<PromptItem>) -> Result<PromptRecord> {
        let Held { record: mut item, version, workspace } = known;
        item.status = standing(&item, self.now());
        let response = match item.status {
            PromptState::Answered => self.held::<PromptResponse>(Domain::Agent, &PromptResponseId::of_item(&id).raw())?,
            PromptState::Open | PromptState::Expired | PromptState::Withdrawn => None,
        };
        Ok(PromptRecord { id, version, workspace, item, response: response.map(|held| held.record) })
    }
}

/// How an item stands: an open one that is too late for an answer is expired.
pub(crate) fn standing(item: &PromptItem, now: Timestamp) -> PromptState {
    if item.status == PromptState::Open && item.required_by <= now { PromptState::Expired } else { item.status }
}
