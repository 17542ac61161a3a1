//! The directory, the secret and the names that the processes of one cluster share.

use super::TestkitError;
use crate::config::secrets_of;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Names of nodes, in alphabetical order, which is also the order of age.
const NAMES: [&str; 12] = [
    "ada", "boris", "clara", "dmitri", "emma", "felix", "greta", "hugo", "ida", "jonas", "klara",
    "leo",
];

/// The name of a node by its number, from 0.
///
/// ```
/// assert_ne!(doyen::testkit::node_name(0), doyen::testkit::node_name(1));
/// ```
#[must_use]
pub fn node_name(number: usize) -> String {
    NAMES
        .get(number)
        .map_or_else(|| format!("node-{}", number + 1), |name| (*name).to_owned())
}

/// A directory for logs, with a fresh secret. A temporary directory is removed when this is
/// dropped.
///
/// ```no_run
/// use doyen::testkit::{Household, PATIENCE, Process, node_name};
/// use std::path::Path;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // One node, without relays.
/// let household = Household::new()?;
/// let name = node_name(0);
/// let mut command = household.node(Path::new("target/release/doyen"), &name);
/// command.args(["--listen", "127.0.0.1:0", "--http", "off"]);
/// let node = Process::start(&name, command, &household.file("log"), PATIENCE).await?;
/// println!("{} listens at {:?}", node.ready().name(), node.ready().address("listen"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Household {
    secret: PathBuf,
    path: PathBuf,
    dir: Option<TempDir>,
}

impl Household {
    /// In a new directory, among the system's temporary files.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn new() -> Result<Self, TestkitError> {
        let cannot = || {
            TestkitError::system(format!(
                "cannot write to {}",
                std::env::temp_dir().display()
            ))
        };
        // It has the secret, and logs of every node.
        let dir = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .prefix("doyen-")
            .tempdir()
            .map_err(cannot())?;
        Self::with_secret(dir.path().to_owned(), Some(dir))
    }

    /// In this directory, which is created if needed, and stays.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn at(path: &Path) -> Result<Self, TestkitError> {
        std::fs::create_dir_all(path).map_err(TestkitError::system(format!(
            "cannot make {}",
            path.display()
        )))?;
        Self::with_secret(path.to_owned(), None)
    }

    fn with_secret(path: PathBuf, dir: Option<TempDir>) -> Result<Self, TestkitError> {
        let secret = path.join("secret");
        let cannot = || TestkitError::system(format!("cannot write {}", secret.display()));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&secret)
            .map_err(cannot())?;
        let bytes: [u8; 32] = rand::random();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        file.write_all(hex.as_bytes()).map_err(cannot())?;
        Ok(Self { secret, path, dir })
    }

    /// The file with the secret.
    #[must_use]
    pub fn secret_file(&self) -> &Path {
        &self.secret
    }

    /// The token of operators: HTTP of the nodes of this household demands it
    /// (`Authorization: Bearer TOKEN`).
    ///
    /// # Errors
    /// The file with the secret was changed, and has no secret of members any more.
    pub fn operator_token(&self) -> Result<String, TestkitError> {
        let secrets = secrets_of(&self.secret, "the secret of the household");
        let secrets = secrets.map_err(|e| TestkitError::Misuse(e.to_string()))?;
        let token = secrets.first().operator_token();
        token.map(|token| token.to_string()).ok_or_else(|| {
            TestkitError::Misuse("the secret of the household is no secret of members".into())
        })
    }

    /// Keeps the directory when this is dropped. Returns its path.
    pub fn keep(&mut self) -> &Path {
        if let Some(dir) = &mut self.dir {
            dir.disable_cleanup(true);
        }
        &self.path
    }

    /// A file of this name in the directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// `binary run` as a node of this household: with its secret, without the `DOYEN_` variables of
    /// the user's shell, and ended when its stdin ends.
    #[must_use]
    pub fn node(&self, binary: &Path, name: &str) -> Command {
        let mut command = Command::new(binary);
        command
            .args(["run", "--name", name, "--exit-with-stdin", "--secret-file"])
            .arg(&self.secret);
        deafen(&mut command);
        command
    }
}

/// Removes the `DOYEN_` variables of the user's shell, which are meant for other nodes.
pub(super) fn deafen(command: &mut Command) {
    for (variable, _) in
        std::env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("DOYEN_"))
    {
        command.env_remove(variable);
    }
}
