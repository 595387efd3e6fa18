//! What goes wrong in a deployment, and how it is put right.

use super::{Client, Deployment, Kind, Process, note};

impl Deployment {
    /// The process id of the worker that has the session's lease.
    pub(super) async fn pid_of(&self, session: &str) -> Option<u64> {
        let client = self.live_clients().next()?;
        let workers = client.get("/workers").await.json();
        workers["items"].as_array()?.iter().find_map(|worker| {
            let leases = worker["leases"].as_array()?;
            let holds = leases.iter().any(|lease| lease["sessionId"] == *session);
            holds.then(|| worker["pid"].as_u64())?
        })
    }

    /// Which of `workers` runs a turn of this session.
    pub(crate) async fn holder(&self, session: &str) -> usize {
        let pid = self.worker_of(session).await.pid();
        self.workers.iter().position(|worker| worker.pid() == pid).expect("a worker of this deployment")
    }

    /// Kills the process that runs a turn of this session. Another goes on with it.
    pub(crate) async fn kill_worker_of(&mut self, session: &str) {
        if self.kind == super::Kind::Distributed {
            let holder = self.holder(session).await;
            self.workers[holder].kill().await;
        } else {
            self.apis[0].kill().await;
            self.restart(0).await;
        }
    }

    /// Kills every process that runs turns only.
    pub(crate) async fn kill_workers(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.runs()) {
            worker.kill().await;
        }
    }

    /// Kills the process that runs turns, the only one or the first, and starts another.
    pub(crate) async fn replace_worker(&mut self) {
        self.runner().kill().await;
        self.start_runner().await;
    }

    /// Stops it as an operator would, and starts another.
    pub(crate) async fn stop_and_replace_worker(&mut self) {
        self.runner().stop().await;
        self.start_runner().await;
    }

    fn runner(&mut self) -> &mut Process {
        let processes = if self.kind == Kind::Distributed { &mut self.workers } else { &mut self.apis };
        processes.iter_mut().find(|process| process.runs()).expect("a process that runs turns")
    }

    async fn start_runner(&mut self) {
        if self.kind == Kind::Distributed {
            self.add_worker();
        } else {
            self.restart(0).await;
        }
    }

    /// Starts a process that serves HTTP, and has ended, once more: the same program on the same data.
    pub(crate) async fn restart(&mut self, n: usize) {
        let mut process = self.spawn(self.apis[n].role);
        self.clients[n] = Client::new(process.url().await);
        self.replaced.push(std::mem::replace(&mut self.apis[n], process));
        self.await_agent().await;
    }

    /// Empties the queues: every ring in them is lost.
    pub(crate) async fn lose_rings(&self) {
        let client = redis::Client::open(self.variable("ROUNDHOUSE_REDIS_URL")).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let prefix = self.variable("ROUNDHOUSE_REDIS_PREFIX");
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{prefix}:queue:*")).query_async(&mut connection).await.unwrap();
        if !keys.is_empty() {
            redis::cmd("DEL").arg(keys).query_async::<()>(&mut connection).await.unwrap();
        }
    }
}

/// A test that fails shows what its processes have to say.
impl Drop for Deployment {
    fn drop(&mut self) {
        if std::thread::panicking() {
            note(&self.logs());
        }
    }
}
