//! A PostgreSQL of the tests' own: one server per test process, on a socket in a temporary folder, with every setting that
//! durability rests on left as it is.
//!
//! A small shell stands between us and the server. It holds the other end of a pipe that closes when this process ends, however it
//! ends, and then stops the server and removes the folder.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use ::postgres::{Client, NoTls};

/// Whom the server runs as when the tests run as root, which it refuses to: `nobody`.
const UNPRIVILEGED: u32 = 65_534;

const SCRIPT: &str = r#"
trap '' INT TERM HUP
"$@" </dev/null 2>&1 &
server=$!
read -r nothing
kill -QUIT $server
wait $server
rm -rf "$FOLDER"
"#;

pub(crate) struct Server {
    folder: PathBuf,
    log: Arc<Mutex<String>>,
    shell: Child,
    /// Closing it ends the server.
    pipe: Option<ChildStdin>,
}

/// The one that the tests of this process share.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    pub(crate) fn start() -> Self {
        let made = tempfile::Builder::new().prefix("verger-pg-").tempdir().unwrap();
        let folder = made.path().to_owned();
        let root = std::fs::metadata(&folder).unwrap().uid() == 0;
        make_data(&folder, root);
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(program("postgres")).arg("-D").arg(folder.join("data"));
        // Deadlocks are looked for sooner than by default, so that tests that make one need not wait for it.
        for setting in ["listen_addresses=", "deadlock_timeout=100ms", "max_connections=60", "shared_buffers=32MB"] {
            command.args(["-c", setting]);
        }
        command.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
        command.env("FOLDER", &folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = unprivileged(&mut command, root).spawn().unwrap();
        // From here on the folder is the shell's to remove.
        let folder = made.keep();
        let (log, pipe) = (Arc::new(Mutex::new(String::new())), shell.stdin.take());
        let (ready, wait) = channel();
        let lines = BufReader::new(shell.stdout.take().unwrap());
        let kept = Arc::clone(&log);
        std::thread::spawn(move || keep_log(lines, &kept, &ready));
        let server = Self { folder, log, shell, pipe };
        assert!(wait.recv().is_ok(), "PostgreSQL did not start: {}", server.log());
        server
    }

    pub(crate) fn config(&self) -> String {
        format!("host={} user=verger dbname=postgres", self.folder.display())
    }

    /// A connection behind the stores' back.
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.config(), NoTls).unwrap()
    }

    /// What the server has said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.shell.wait().ok();
    }
}

/// Says once that the server is ready, and goes on until it ends.
fn keep_log(lines: impl BufRead, log: &Mutex<String>, ready: &Sender<()>) {
    for line in lines.lines().map_while(Result::ok) {
        let mut log = log.lock().unwrap();
        log.push_str(&line);
        log.push('\n');
        if line.contains("ready to accept connections") {
            ready.send(()).ok();
        }
    }
}

/// Makes the server's files, from a copy if an earlier process has left one under `target`.
fn make_data(folder: &Path, root: bool) {
    let version = Command::new(program("postgres")).arg("--version").output().unwrap().stdout;
    let name: String = String::from_utf8_lossy(&version).chars().filter(char::is_ascii_alphanumeric).collect();
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-template-1"));
    let data = folder.join("data");
    if template.is_dir() {
        copy(&template, &data);
    }
    if root {
        run(Command::new("chown").arg("-R").arg(format!("{UNPRIVILEGED}:{UNPRIVILEGED}")).arg(folder));
    }
    if template.is_dir() {
        return;
    }
    let mut initdb = Command::new(program("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=verger", "--no-locale", "--encoding=UTF8", "--pgdata"]).arg(&data);
    run(unprivileged(&mut initdb, root));
    // Under another name first: several processes start at once, and each must find all of it or nothing.
    let partial = tempfile::Builder::new().prefix("partial-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy(&data, &partial.path().join("data"));
    std::fs::rename(partial.path().join("data"), template).ok();
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-R").arg(from).arg(to));
}

fn unprivileged(command: &mut Command, root: bool) -> &mut Command {
    if root { command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/") } else { command }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A server program, on PATH or where Debian keeps it.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut packaged: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.filter_map(Result::ok).map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    packaged.sort();
    let found =
        std::env::split_paths(&path).chain(packaged.into_iter().rev()).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("there is no `{name}` on PATH or under /usr/lib/postgresql: run ./test, which installs it"))
}
