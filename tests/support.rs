//! What every test from outside needs: a home, the binary, and its answer.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder for one test, with the place of a home in it.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    path: PathBuf,
}

/// What a command left behind when it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What was asked, for the messages of failing tests.
    asked: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    /// A home that `init` has made.
    pub(crate) fn new() -> Self {
        let home = Self::missing();
        home.run(&["init"]).ok();
        home
    }

    /// Only the folder that a home could be made in.
    pub(crate) fn missing() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("home");
        Self { folder, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path beside the home.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the home and gives its path as an argument.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.beside(name);
        std::fs::write(&path, content).expect("the test's own folder can be written");
        path.display().to_string()
    }

    /// `store/<name>.sqlite`, or the WAL of it with `-wal` in the name.
    pub(crate) fn database(&self, domain: &str) -> PathBuf {
        self.path.join("store").join(format!("{domain}.sqlite"))
    }

    /// The binary with this home and an empty environment.
    pub(crate) fn command(&self) -> Command {
        command(Path::new(env!("CARGO_BIN_EXE_verger")), &self.path)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        finish(self.command().args(arguments), b"")
    }

    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Answer {
        finish(self.command().args(arguments), input)
    }

    /// Runs a command that succeeds with `--json`, and gives its one document.
    pub(crate) fn json(&self, schema: &str, arguments: &[&str]) -> Value {
        let answer = finish(self.command().arg("--json").args(arguments), b"");
        assert_eq!(answer.code, Some(0), "{answer:#?}");
        answer.document(schema)
    }

    /// Adds a note and gives its id.
    pub(crate) fn add(&self, title: &str) -> String {
        let document = self.json("verger.note-written.v1", &["note", "add", title]);
        text(&document, "id").to_owned()
    }

    /// The titles of all notes, page by page, newest change first.
    pub(crate) fn titles(&self, page: usize) -> Vec<String> {
        self.all_notes(page).iter().map(|note| text(note, "title").to_owned()).collect()
    }

    /// All notes, page by page, newest change first.
    pub(crate) fn all_notes(&self, page: usize) -> Vec<Value> {
        let limit = page.to_string();
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut arguments = vec!["note", "list", "--limit", &limit];
            arguments.extend(after.as_deref().map(|after| ["--after", after]).into_iter().flatten());
            let document = self.json("verger.notes.v1", &arguments);
            let notes = list(&document, "notes");
            assert!(notes.len() <= page, "a page is not longer than asked for");
            found.extend_from_slice(notes);
            match document["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => {
                    assert_eq!(document["total"], found.len(), "the total is what the pages hold together");
                    return found;
                }
            }
        }
    }

    /// The log is as it was written.
    pub(crate) fn assert_sound(&self) {
        let document = self.json("verger.log-verify.v1", &["log", "verify"]);
        assert_eq!(document["sound"], true, "{document:#}");
    }

    /// Holds exactly these notes, is sound and takes another one.
    pub(crate) fn assert_works_with(&self, titles: &[&str]) {
        assert_eq!(self.titles(100), titles, "nothing is lost and nothing is added");
        self.assert_sound();
        let id = self.add("the next command works");
        self.run(&["note", "rm", &id]).ok();
    }
}

impl Answer {
    fn of(asked: String, output: Output) -> Self {
        let readable = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what verger writes is UTF-8");
        let answer = Self { asked, code: output.status.code(), stdout: readable(output.stdout), stderr: readable(output.stderr) };
        assert!(!answer.stderr.contains("panicked"), "{answer:#?}");
        answer
    }

    /// The command succeeded.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The command failed with this code, said so in words and ended with this exit code.
    pub(crate) fn fails(self, exit: i32, code: &str) -> Self {
        assert_eq!(self.code, Some(exit), "{self:#?}");
        assert!(self.stderr.contains(&format!("error[{code}]: ")), "{self:#?}");
        self
    }

    /// It said so on stderr.
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "`{text}` is not in {self:#?}");
        self
    }

    /// It said so on stdout.
    pub(crate) fn shows(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "`{text}` is not in {self:#?}");
        self
    }

    /// The one document on stdout.
    pub(crate) fn document(&self, schema: &str) -> Value {
        let document: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("one document: {error}: {self:#?}"));
        assert_eq!(document["schema"], schema, "{}", self.asked);
        document
    }

    /// The error in the document of a failed `--json` command.
    pub(crate) fn error(&self) -> Value {
        self.document("verger.error.v1")["error"].clone()
    }

    /// The lines of stdout, each a document.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(parsed).collect()
    }
}

/// A line that is a document.
pub(crate) fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}` is not a document: {error}"))
}

/// A field that must be a string.
pub(crate) fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap_or_else(|| panic!("`{field}` is not a text in {document:#}"))
}

/// A field that must be a list.
pub(crate) fn list<'a>(document: &'a Value, field: &str) -> &'a [Value] {
    document[field].as_array().unwrap_or_else(|| panic!("`{field}` is not a list in {document:#}"))
}

/// A program with a home and an empty environment.
pub(crate) fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().arg("--home").arg(home);
    command
}

/// Runs a command to its end, with something on its stdin.
pub(crate) fn finish(command: &mut Command, input: &[u8]) -> Answer {
    let asked = format!("{command:?}");
    let mut child = start(command);
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that has had enough closes its end, which is its right.
            stdin.write_all(input).ok();
        });
        child.wait_with_output().expect("the child can be waited for")
    });
    Answer::of(asked, output)
}

/// Starts a command with everything piped.
pub(crate) fn start(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}

/// Waits for a child that was started before, after closing its stdin.
pub(crate) fn end(child: Child, stdin: ChildStdin) -> Answer {
    drop(stdin);
    Answer::of("the child".to_owned(), child.wait_with_output().expect("the child can be waited for"))
}

/// How the newest run stands: its status, what it waits for, and how much it has done.
pub(crate) fn newest_run(home: &Home) -> Value {
    let run = home.json("verger.runs.v1", &["run", "list"])["runs"][0].clone();
    serde_json::json!([run["status"], run["waiting"], run["operations"]])
}

/// A line for `note add --stdin`.
pub(crate) fn line(operation_id: &str, title: &str) -> String {
    format!("{}\n", serde_json::json!({ "operation_id": operation_id, "title": title }))
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("Linux has /proc").uid() == 0
}

/// Somebody whom permissions stop: the runner's own account, or nobody's when the runner is root, whom they do not.
#[derive(Debug)]
pub(crate) struct Nobody {
    folder: TempDir,
    binary: PathBuf,
}

const NOBODY: u32 = 65_534;

impl Nobody {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let binary = folder.path().join("verger");
        std::fs::copy(env!("CARGO_BIN_EXE_verger"), &binary).expect("the binary can be copied");
        set_mode(folder.path(), 0o755);
        set_mode(&binary, 0o755);
        let own = folder.path().join("own");
        std::fs::create_dir(&own).expect("the test's own folder can be written");
        if is_root() {
            std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("root can give a folder away");
        }
        Self { folder, binary }
    }

    /// A place for a home in a folder that is theirs.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.folder.path().join("own").join(name)
    }

    /// A place for a home in a folder that is the runner's.
    pub(crate) fn foreign(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, home: &Path, arguments: &[&str]) -> Answer {
        let mut command = if is_root() {
            let mut command = Command::new("/usr/bin/setpriv");
            let account = NOBODY.to_string();
            command.args(["--reuid", &account, "--regid", &account, "--clear-groups"]).arg(&self.binary);
            command
        } else {
            Command::new(&self.binary)
        };
        finish(command.env_clear().arg("--home").arg(home).args(arguments), b"")
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Every file and folder under a folder, folders first.
pub(crate) fn everything_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder of the test can be read");
            found.extend(entries.map(|entry| entry.expect("a folder of the test can be read").path()));
        }
    }
    found
}

/// Takes the right to write away from everything in a folder, or gives it back.
pub(crate) fn set_writable(folder: &Path, writable: bool) {
    for path in everything_in(folder) {
        let execute = if path.is_dir() { 0o100 } else { 0 };
        set_mode(&path, 0o400 | execute | if writable { 0o200 } else { 0 });
    }
}
