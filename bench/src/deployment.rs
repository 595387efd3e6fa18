//! The processes that are measured.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// One process on SQLite.
    Embedded,
    /// One api and two workers on Postgres and Redis.
    Distributed,
}

/// A process of the binary, ended with this.
pub(crate) struct Process {
    child: Child,
    url: String,
}

impl Process {
    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn start(binary: &Path, arguments: &[&str], env: &[(&str, String)], dir: &Path) -> Result<Child> {
        let binary = binary.canonicalize().with_context(|| format!("no binary at {}", binary.display()))?;
        Command::new(binary)
            .args(arguments)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("the binary does not start")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn ready(url: &str) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
    for _ in 0..600 {
        if http.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{url} does not answer");
}

/// The oracle as a process of its own, so that its work is not the load generator's.
pub(crate) async fn oracle(binary: &Path) -> Result<Process> {
    let listen = format!("127.0.0.1:{}", free_port()?);
    let child = Process::start(binary, &["oracle", "--listen", &listen], &[], Path::new("."))?;
    let process = Process { child, url: format!("http://{listen}") };
    ready(&format!("{}/v1/models", process.url)).await?;
    Ok(process)
}

/// A deployment that runs.
pub(crate) struct Deployment {
    processes: Vec<Process>,
    _dir: tempfile::TempDir,
}

impl Deployment {
    /// Starts a deployment, or `None` where its services are missing.
    pub(crate) async fn start(
        binary: &Path,
        kind: Kind,
        oracle: &str,
        (postgres, redis): (Option<&str>, Option<&str>),
    ) -> Result<Option<Self>> {
        let dir = tempfile::tempdir()?;
        let agents =
            format!("[agents.bench]\nengine = \"openai\"\nbase_url = \"{oracle}/v1\"\nmodel = \"oracle\"\n");
        std::fs::write(dir.path().join("roundhouse.toml"), agents)?;
        let listen = format!("127.0.0.1:{}", free_port()?);
        let mut env = vec![
            ("ROUNDHOUSE_LISTEN", listen.clone()),
            ("ROUNDHOUSE_DATA_DIR", dir.path().join("data").display().to_string()),
            ("ROUNDHOUSE_SLOTS", "128".to_owned()),
            ("ROUNDHOUSE_LOG", "warn".to_owned()),
        ];
        let roles: &[&str] = match kind {
            Kind::Embedded => &["up"],
            Kind::Distributed => {
                let (Some(postgres), Some(redis)) = (postgres, redis) else { return Ok(None) };
                env.push(("ROUNDHOUSE_DATABASE_URL", crate::floor::fresh_database(postgres, "bench").await?));
                env.push(("ROUNDHOUSE_REDIS_URL", redis.to_owned()));
                env.push(("ROUNDHOUSE_REDIS_PREFIX", format!("bench{}", std::process::id())));
                &["api", "worker", "worker"]
            }
        };
        let url = format!("http://{listen}");
        let mut processes = Vec::new();
        for role in roles {
            let child = Process::start(binary, &[role], &env, dir.path())?;
            processes.push(Process { child, url: url.clone() });
            if processes.len() == 1 {
                ready(&format!("{url}/readyz")).await?;
            }
        }
        // Workers have to be known before they are asked.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(Some(Self { processes, _dir: dir }))
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        self.processes[0].url()
    }

    /// The resident memory of the process that serves HTTP, in KiB.
    pub(crate) fn api_memory_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.processes[0].child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    }
}
