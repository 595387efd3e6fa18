//! Ids of calls as a provider takes them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::needs::{CallIds, Needs};

/// The length of a short id, as Mistral wants it.
const SHORT_ID: usize = 9;

/// The ids of calls as they are sent.
pub(super) struct Ids<'a> {
    is_short: bool,
    short: HashMap<&'a str, String>,
    taken: HashSet<String>,
}

impl<'a> Ids<'a> {
    pub(super) fn of(needs: &Needs) -> Self {
        Self { is_short: needs.call_ids == CallIds::Short, short: HashMap::new(), taken: HashSet::new() }
    }

    pub(super) fn sent(&mut self, id: &'a str) -> Cow<'a, str> {
        if !self.is_short {
            return id.into();
        }
        if let Some(short) = self.short.get(id) {
            return short.clone().into();
        }
        let is_fine = id.len() == SHORT_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut short = if is_fine { id.to_owned() } else { shortened(id, 0) };
        // Prompt caches hold only if an id is made the same way in each request.
        let mut salt = 0;
        while !self.taken.insert(short.clone()) {
            salt += 1;
            short = shortened(id, salt);
        }
        self.short.insert(id, short.clone());
        short.into()
    }
}

/// A short id that is always the same for the same id: FNV-1a in base 36.
fn shortened(id: &str, salt: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let start = 0xcbf2_9ce4_8422_2325_u64 ^ salt;
    let mut hash =
        id.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut short = String::with_capacity(SHORT_ID);
    for _ in 0..SHORT_ID {
        short.push(char::from(DIGITS[usize::try_from(hash % 36).unwrap_or_default()]));
        hash /= 36;
    }
    short
}
