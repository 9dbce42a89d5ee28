//! Descriptions of brokers in `peers/NAME.toml`, and their installation.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::reference;
use crate::archive;
use ottla_workspace::{process, toolchain, workspace};

/// A broker to compare with, as described by its file.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The name in results.
    pub name: String,
    /// Maven coordinates `group:artifact:version`; runtime dependencies are included.
    #[serde(default)]
    maven: Vec<String>,
    /// A binary of this workspace.
    cargo: Option<CargoBinary>,
    /// The command that formats an empty data directory.
    format: Vec<String>,
    /// The command that runs the broker in the foreground.
    start: Vec<String>,
    /// The prefix of a command that runs one of the peer's tools; the tool's name and arguments
    /// follow.
    tool: Vec<String>,
    /// Classes of tools by the names that they have in the version of `peers/kafka.toml`.
    #[serde(default)]
    moved_tools: BTreeMap<String, String>,
    /// Broker settings that only this peer supports.
    #[serde(default)]
    settings: BTreeMap<String, String>,
    /// The release of Kafka with whose feature levels Ottla formats a directory where this peer is
    /// the reference; without it, Ottla's default.
    levels: Option<String>,
    /// The name by which it was loaded: the file's base name, or `kafka` for the reference.
    #[serde(skip)]
    id: String,
    /// The folder of its installation: the file's base name, and an additional artefact.
    #[serde(skip)]
    folder: String,
    /// Replaces the binary that cargo builds.
    #[serde(skip)]
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CargoBinary {
    package: String,
    binary: String,
}

/// A peer that is installed on this machine.
#[derive(Debug, Clone)]
pub struct InstalledPeer {
    peer: Peer,
    /// The values of the commands' placeholders, except those specific to a node.
    places: BTreeMap<&'static str, String>,
    /// The archive with the classes of its tools, in a suite.
    archive: Option<PathBuf>,
}

impl Peer {
    /// Reads `peers/NAME.toml`; for `kafka`, the file of the reference.
    pub fn load(id: &str) -> Result<Peer> {
        let name = match id {
            reference::KAFKA => reference::chosen(),
            other => other,
        };
        let file = workspace::root()
            .join("peers")
            .join(name)
            .with_extension("toml");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("no peer is described by {}", file.display()))?;
        let mut peer: Peer = toml::from_str(&text).with_context(|| file.display().to_string())?;
        peer.id = id.to_owned();
        peer.folder = name.to_owned();
        Ok(peer)
    }

    /// Makes this peer the reference, which `kafka` means from now on. For the start of a program.
    pub fn choose_as_reference(name: &str) -> Result<()> {
        let peer = Peer::load(name)?;
        ensure!(peer.is_kafka(), "{} cannot be a reference", peer.name);
        ensure!(reference::choose(name), "the reference is chosen once");
        Ok(())
    }

    /// Whether it is a version of Apache Kafka.
    fn is_kafka(&self) -> bool {
        self.cargo.is_none()
    }

    /// The release whose feature levels Ottla formats with where this peer is the reference, if it
    /// is not Ottla's default.
    pub fn levels(&self) -> Option<&str> {
        self.levels.as_deref()
    }

    /// The version of its artefacts.
    pub fn version(&self) -> Result<&str> {
        let first = self.maven.first().and_then(|it| it.rsplit_once(':'));
        let (_, version) = first.with_context(|| format!("{} has no artefacts", self.name))?;
        Ok(version)
    }

    /// Adds another artefact with the same group and version to the class path.
    pub fn with_artefact(mut self, artefact: &str) -> Peer {
        if let Some((maker, version)) = self
            .maven
            .first()
            .and_then(|first| Some((first.split_once(':')?.0, first.rsplit_once(':')?.1)))
        {
            let coordinates = format!("{maker}:{artefact}:{version}");
            self.maven.push(coordinates);
            self.folder = format!("{}-{artefact}", self.folder);
        }
        self
    }

    /// Another build of Ottla: the program at `binary`.
    pub fn other_build(binary: &Path) -> Result<Peer> {
        let mut peer = Peer::load("ottla")?;
        let binary = binary
            .canonicalize()
            .with_context(|| format!("no build of Ottla is at {}", binary.display()))?;
        peer.name = "Other build".to_owned();
        peer.id = "ottla-other-build".to_owned();
        peer.folder = peer.id.clone();
        peer.binary = Some(binary);
        Ok(peer)
    }

    /// Installs the peer's files on this machine if they are missing.
    pub fn install(self) -> Result<InstalledPeer> {
        let mut places = BTreeMap::new();
        let mut archive = None;
        places.insert(
            "peers",
            workspace::root().join("peers").display().to_string(),
        );
        match (&self.cargo, self.maven.as_slice()) {
            (Some(cargo), []) => {
                let binary = match &self.binary {
                    Some(binary) => binary.clone(),
                    None => workspace::release_binary(&cargo.package, &cargo.binary)?,
                };
                places.insert("binary", binary.display().to_string());
            }
            (None, [_, ..]) => {
                toolchain::require(&toolchain::JAVA)?;
                let folder = workspace::target_dir().join("peers").join(&self.folder);
                let jars = resolve_with_maven(&folder, &self.maven)?;
                places.insert("class_path", class_path(&jars)?);
                if workspace::is_suite() {
                    let fill = |word: &String| fill_in(word, &places);
                    let tool: Vec<String> = self.tool.iter().map(fill).collect();
                    archive = archive::of_tools(&jars, &tool)?;
                }
            }
            _ => bail!(
                "peers/{}.toml must name either `maven` or `cargo`",
                self.folder
            ),
        }
        Ok(InstalledPeer {
            peer: self,
            places,
            archive,
        })
    }
}

impl InstalledPeer {
    pub fn name(&self) -> &str {
        &self.peer.name
    }

    /// The name by which it was loaded: `kafka` for the reference, or the base name of its
    /// description.
    pub fn id(&self) -> &str {
        &self.peer.id
    }

    /// The name of its installation's folder, which differs between versions.
    pub(super) fn folder(&self) -> &str {
        &self.peer.folder
    }

    /// The peer's own settings on top of `peers/server.properties`.
    pub(super) fn settings(&self) -> &BTreeMap<String, String> {
        &self.peer.settings
    }

    /// The Java class path, if the peer has one.
    pub fn class_path(&self) -> Option<&str> {
        self.places.get("class_path").map(String::as_str)
    }

    /// The same peer with another folder on its Java class path, for plugins.
    pub fn with_classes(mut self, folder: &Path) -> InstalledPeer {
        if let Some(class_path) = self.places.get_mut("class_path") {
            class_path.push(':');
            class_path.push_str(&folder.display().to_string());
        }
        self
    }

    /// The command that runs one of the peer's tools. The caller adds the arguments.
    pub fn tool(&self, name: &str) -> Command {
        let mut command = self.command(&self.in_suites(&self.peer.tool), &BTreeMap::new());
        command.arg(self.tool_class(name));
        command
    }

    /// The name of a tool in this peer, by its name in the version of `peers/kafka.toml`.
    pub fn tool_class<'a>(&'a self, name: &'a str) -> &'a str {
        let moved = self.peer.moved_tools.get(name);
        moved.map_or(name, String::as_str)
    }

    /// The archive with the classes of its tools, in a suite. It is in the folder of the jars.
    pub(super) fn archive(&self) -> Option<&Path> {
        self.archive.as_deref()
    }

    /// The same peer with only the jars of this folder on its class path, without plugins.
    pub(super) fn with_only_jars(&self, libs: &Path) -> Result<InstalledPeer> {
        let mut plain = self.clone();
        plain.places.insert("class_path", class_path(libs)?);
        Ok(plain)
    }

    /// `options` are those of its JVM in a suite.
    pub(super) fn format_command(
        &self,
        places: &BTreeMap<&'static str, String>,
        voters_flag: Option<&str>,
        options: &[String],
    ) -> Result<Command> {
        let mut words = self.peer.format.clone();
        // This flag formats a dynamic quorum of one.
        words.retain(|word| word != "--standalone");
        words.extend(voters_flag.map(str::to_owned));
        if !self.peer.is_kafka()
            && let Some(levels) = Peer::load(reference::KAFKA)?.levels
        {
            words.extend(["--release-version".to_owned(), levels]);
        }
        Ok(self.command(&with_options(&words, options), places))
    }

    /// `options` are those of its JVM in a suite.
    pub(super) fn start_command(
        &self,
        places: &BTreeMap<&'static str, String>,
        options: &[String],
    ) -> Command {
        let words = match self.archive {
            Some(_) => archive::for_short_life(&self.peer.start),
            None => self.peer.start.clone(),
        };
        self.command(&with_options(&words, options), places)
    }

    /// The words of a command that starts a JVM. In a suite, which checks behaviour and runs for a
    /// minute, with an archive of classes and without the compiler that pays off later.
    pub(super) fn in_suites(&self, words: &[String]) -> Vec<String> {
        match &self.archive {
            Some(archive) => with_options(words, &archive::options(archive)),
            None => words.to_vec(),
        }
    }

    fn command(&self, words: &[String], node: &BTreeMap<&'static str, String>) -> Command {
        let mut words = words
            .iter()
            .map(|word| fill_in(&fill_in(word, node), &self.places));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }
}

/// The words of a command with options after its program.
fn with_options(words: &[String], options: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    words.splice(1..1, options.iter().cloned()).for_each(drop);
    words
}

/// Replaces each `{name}` with its value.
pub(super) fn fill_in(text: &str, places: &BTreeMap<&'static str, String>) -> String {
    let mut filled = text.to_owned();
    for (name, value) in places {
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    filled
}

/// Resolves the artefacts and their runtime dependencies with Maven into `folder/libs`, once per
/// list.
pub fn resolve_with_maven(folder: &Path, artefacts: &[String]) -> Result<PathBuf> {
    let libs = folder.join("libs");
    let pom = project_file(artefacts)?;
    let complete = folder.join("complete.xml");
    std::fs::create_dir_all(folder)?;
    // Another suite may resolve the same list at the same time. Closing the file releases the lock.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if std::fs::read_to_string(&complete).is_ok_and(|done| done == pom) {
        return Ok(libs);
    }
    let mut maven = toolchain::maven()?;
    if libs.exists() {
        std::fs::remove_dir_all(&libs)?;
    }
    std::fs::write(folder.join("pom.xml"), &pom)?;
    process::output_of(
        maven
            .arg("dependency:copy-dependencies")
            .args(["-DoutputDirectory=libs", "-DincludeScope=runtime"])
            .current_dir(folder),
    )?;
    std::fs::write(&complete, &pom)?;
    Ok(libs)
}

/// A Maven project whose only content is these dependencies.
fn project_file(artefacts: &[String]) -> Result<String> {
    let mut dependencies = String::new();
    for artefact in artefacts {
        let parts: Vec<&str> = artefact.split(':').collect();
        let [group, name, version] = parts[..] else {
            bail!("`{artefact}` is not of the form group:artifact:version");
        };
        dependencies.push_str(&format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>\n"
        ));
    }
    Ok(format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  \
         <groupId>ottla.peers</groupId><artifactId>peer</artifactId><version>1</version>\n  \
         <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    ))
}

/// All jars of a folder as a class path, in a fixed order.
pub fn class_path(libs: &Path) -> Result<String> {
    let mut jars = Vec::new();
    for entry in std::fs::read_dir(libs)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jar") {
            jars.push(path.display().to_string());
        }
    }
    jars.sort();
    Ok(jars.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_peer_can_be_read() {
        for entry in std::fs::read_dir(workspace::root().join("peers")).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let id = path.file_stem().unwrap().to_str().unwrap();
                let peer = Peer::load(id).unwrap();
                assert!(!peer.start.is_empty() && !peer.format.is_empty(), "{id}");
            }
        }
    }

    #[test]
    fn brokers_of_suites_start_with_less() {
        for entry in std::fs::read_dir(workspace::root().join("peers")).unwrap() {
            let path = entry.unwrap().path();
            let id = path.file_stem().unwrap().to_str().unwrap();
            if !id.starts_with("kafka") {
                continue;
            }
            let start = Peer::load(id).unwrap().start;
            let short = archive::for_short_life(&start);
            let has = |word: &str| short.iter().any(|found| found == word);
            assert!(has("-XX:+UseSerialGC") && !has("-XX:+UseG1GC"), "{id}");
            assert!(has("-Xmx1G") && !has("-Xms1G"), "{id}");
            let has_management = short.iter().any(|word| word.contains("management"));
            assert!(!has_management && has("{config}"), "{id}");
        }
    }

    #[test]
    fn options_follow_the_program() {
        let words = ["java", "-cp", "a"].map(str::to_owned);
        let options = ["-Xlog:disable".to_owned()];
        let expected = ["java", "-Xlog:disable", "-cp", "a"];
        assert_eq!(with_options(&words, &options), expected);
        assert_eq!(with_options(&words, &[]), words);
    }

    #[test]
    fn an_unknown_peer_is_refused_by_the_name_of_its_file() {
        let error = Peer::load("unknown").unwrap_err().to_string();
        assert!(error.contains("unknown.toml"), "{error}");
    }

    #[test]
    fn placeholders_are_filled_in_and_others_left() {
        let places = BTreeMap::from([("port", "9".to_owned())]);
        assert_eq!(fill_in("a:{port}/{dir}", &places), "a:9/{dir}");
    }

    #[test]
    fn an_artefact_needs_group_name_and_version() {
        assert!(
            project_file(&["a:b:1".to_owned()])
                .unwrap()
                .contains("<version>1</version>")
        );
        assert!(project_file(&["a:b".to_owned()]).is_err());
    }
}
