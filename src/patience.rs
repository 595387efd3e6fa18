//! Waiting for what is not there yet.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The first wait between two tries; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest one.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// Asks until it is there. What does not pass by waiting is an error at once.
pub(crate) async fn until_up<T, E, F>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    E: std::error::Error,
    F: Future<Output = Result<T, E>>,
{
    let until = Instant::now() + patience;
    let mut wait = FIRST_WAIT;
    loop {
        match ask().await {
            Err(error) if passes(&error) && Instant::now() + wait < until => {
                tracing::warn!(error = %crate::terminal::chain(&error), "waiting for {what}");
            }
            done => return done,
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_start_waits_for_what_passes_and_for_nothing_else() {
        let mut tries = 0;
        let asked = || {
            tries += 1;
            let answer = if tries < 2 { Err(io::Error::other("away")) } else { Ok(tries) };
            async move { answer }
        };
        assert_eq!(until_up("it", PATIENCE, asked, |_| true).await.unwrap(), 2);

        let mut tries = 0;
        let mut wrong = || {
            tries += 1;
            async { Err::<(), _>(io::Error::other("wrong")) }
        };
        assert!(until_up("it", PATIENCE, &mut wrong, |_| false).await.is_err());
        assert!(until_up("it", FIRST_WAIT * 2, &mut wrong, |_| true).await.is_err());
        assert_eq!(tries, 3);
    }
}
