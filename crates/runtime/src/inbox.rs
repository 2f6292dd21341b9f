//! The inbox as people look at it: everything that waits for their answer, and what became of the rest (L36).

use domain::causality::Domain;
use domain::code::ErrorCode;
use domain::id::{PromptItemId, PromptResponseId, WorkspaceId};
use domain::record::{Record, Value};
use domain::records::prompt::{PromptItem, PromptResponse, PromptState, Verdict};
use store::store::{Direction, Scan};

use crate::house::{Held, House, held};
use crate::operation::ClientKey;
use crate::pages::{self, checked_limit};
use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRecord {
    pub id: PromptItemId,
    pub version: u64,
    pub workspace: WorkspaceId,
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

    /// The items of a state: open ones by when they expire, the others with the latest first.
    pub fn prompts(&self, state: PromptState, limit: usize, after: Option<&str>) -> Result<PromptPage> {
        let prefix = vec![Value::from(state.as_str())];
        let mut scan = Scan::new(PromptItem::SPEC, "by_status");
        scan.after = after.map(|after| pages::key(prefix.clone(), after, PromptItemId::PREFIX)).transpose()?;
        scan.prefix = prefix;
        scan.direction = if state == PromptState::Open { Direction::Forward } else { Direction::Backward };
        scan.limit = checked_limit(limit)?;
        let page = self.page(Domain::Agent, &scan)?;
        let mut items = Vec::new();
        for row in &page.rows {
            let Some(item) = held::<PromptItem>(row)? else { continue };
            items.push(self.prompt_record(PromptItemId::from_raw(row.id), item)?);
        }
        Ok(PromptPage { items, next: page.next.as_ref().map(|next| pages::token(next, PromptItemId::PREFIX)) })
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
        let Held { record: item, version, workspace } = known;
        let response = match item.status {
            PromptState::Answered => self.held::<PromptResponse>(Domain::Agent, &PromptResponseId::of_item(&id).raw())?,
            PromptState::Open | PromptState::Expired | PromptState::Withdrawn => None,
        };
        Ok(PromptRecord { id, version, workspace, item, response: response.map(|held| held.record) })
    }
}
