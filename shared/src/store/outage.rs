//! Which errors of a database pass by waiting.

use sqlx::Error;

/// Whether the database is away or refuses for now, so that the same may work later.
pub(super) fn is_outage(error: &Error) -> bool {
    match error {
        Error::Io(_)
        | Error::Tls(_)
        | Error::Protocol(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed
        // The connection is not in the state in which it was left.
        | Error::BeginFailed => true,
        Error::Database(error) => error.code().is_some_and(|code| is_outage_code(&code)),
        _ => false,
    }
}

/// Whether the database has ended the transaction in favour of another, so that the same may work at once.
pub(super) fn is_conflict(error: &Error) -> bool {
    // Serialization failure, deadlock.
    let is_conflict = |code: &str| matches!(code, "40001" | "40P01");
    matches!(error, Error::Database(error) if error.code().is_some_and(|code| is_conflict(&code)))
}

fn is_outage_code(code: &str) -> bool {
    // The codes of Postgres have five characters, those of SQLite are numbers with at most four digits.
    if code.len() < 5 {
        return code.parse().is_ok_and(is_outage_of_sqlite);
    }
    // Connection exceptions, transactions that were rolled back, insufficient resources, the operator's intervention (a
    // shutdown, a cancelled statement, a statement timeout), errors outside of Postgres (I/O).
    let class = matches!(&code[..2], "08" | "40" | "53" | "57" | "58");
    // Ended by a limit for idle or long transactions; read-only; a lock that was not to be had.
    class || matches!(code, "25P03" | "25P04" | "25006" | "55P03" | "55006")
}

fn is_outage_of_sqlite(code: u32) -> bool {
    // The low byte is the primary code: busy, locked, out of memory, read-only, interrupted, I/O error, disk full, cannot
    // open, locking protocol.
    matches!(code & 0xff, 5..=10 | 13..=15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_waiting_is_an_outage() {
        let outages = [
            "08006", "08P01", "25006", "25P03", "25P04", "40001", "40P01", "40003", "53300", "53100",
            "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "58030", "5", "6", "8", "10", "13", "14",
            "261", "517",
        ];
        for code in outages {
            assert!(is_outage_code(code), "{code}");
        }
        // Wrong statements, broken rules, wrong passwords.
        for code in
            ["42601", "42P01", "23505", "22P02", "28P01", "3D000", "25P02", "XX000", "1", "19", "2067"]
        {
            assert!(!is_outage_code(code), "{code}");
        }
    }
}
