//! Apache Kafka's jars: from KAFKA_HOME, or downloaded with Maven once into the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The version that is downloaded by default.
const VERSION: &str = "4.3.1";
/// The broker, and the logging libraries of its distribution.
const ARTEFACTS: &[(&str, &str, &str)] = &[
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
];

/// The jars of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaArtefacts {
    pub class_path: String,
    /// The version of the broker's own jar.
    pub version: String,
}

impl KafkaArtefacts {
    /// Finds the jars, downloading them if necessary.
    pub fn find() -> Result<KafkaArtefacts> {
        let libs = match std::env::var_os("KAFKA_HOME") {
            Some(home) => PathBuf::from(home).join("libs"),
            None => fetched()?,
        };
        let artefacts = KafkaArtefacts::in_folder(&libs)?;
        let has_java = Command::new("java").arg("-version").output();
        ensure!(
            has_java.is_ok_and(|output| output.status.success()),
            "the target kafka needs Java 17 or newer, and `java` cannot be started; install it, for example with: \
             apt-get install default-jre-headless"
        );
        Ok(artefacts)
    }

    fn in_folder(libs: &Path) -> Result<KafkaArtefacts> {
        let listed = std::fs::read_dir(libs).with_context(|| {
            format!(
                "{} cannot be read; KAFKA_HOME must hold a folder libs",
                libs.display()
            )
        })?;
        let mut jars = Vec::new();
        for entry in listed {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jar") {
                jars.push(path);
            }
        }
        jars.sort();
        let version = jars.iter().find_map(|jar| {
            let name = jar.file_stem()?.to_str()?;
            let version = name
                .strip_prefix("kafka_2.13-")
                .or(name.strip_prefix("kafka_2.12-"))?;
            version
                .starts_with(|c: char| c.is_ascii_digit())
                .then(|| version.to_owned())
        });
        let Some(version) = version else {
            bail!(
                "{} holds no jar of a Kafka broker (kafka_2.13-….jar)",
                libs.display()
            );
        };
        let jars: Vec<String> = jars.iter().map(|jar| jar.display().to_string()).collect();
        Ok(KafkaArtefacts {
            class_path: jars.join(":"),
            version,
        })
    }
}

/// The jars in the user's cache directory, which are complete when the marker file exists.
fn fetched() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cache = cache.context("the target kafka needs HOME, to keep Kafka's jars in its cache")?;
    let folder = cache.join("ottla-bench").join(format!("kafka-{VERSION}"));
    let (libs, complete) = (folder.join("libs"), folder.join("complete"));
    if complete.exists() {
        return Ok(libs);
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(folder.join("pom.xml"), project_file())?;
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
        .args(["-DoutputDirectory=libs", "-DincludeScope=runtime"])
        .current_dir(&folder)
        .output();
    let advice = "install Maven, or set KAFKA_HOME to the folder of an unpacked Kafka";
    match output {
        Err(error) => bail!(
            "the target kafka needs Kafka's jars, and `mvn` cannot be started ({error}); {advice}"
        ),
        Ok(output) if !output.status.success() => bail!(
            "Maven could not fetch Kafka {VERSION}; {advice}:\n{}",
            String::from_utf8_lossy(&output.stdout).trim_end()
        ),
        Ok(_) => {}
    }
    std::fs::write(&complete, VERSION)?;
    Ok(libs)
}

fn project_file() -> String {
    let dependency = |(group, name, version): &(&str, &str, &str)| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>\n"
        )
    };
    let dependencies: String = ARTEFACTS.iter().map(dependency).collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>ottla.bench</groupId><artifactId>kafka</artifactId><version>1</version>\n\
         <dependencies>\n{dependencies}</dependencies></project>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jars_and_their_version_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let error = KafkaArtefacts::in_folder(dir.path()).unwrap_err();
        assert!(
            error.to_string().contains("no jar of a Kafka broker"),
            "{error}"
        );
        for name in ["kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "x.txt"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = KafkaArtefacts::in_folder(dir.path()).unwrap();
        assert_eq!(found.version, "4.3.1");
        assert_eq!(found.class_path.split(':').count(), 2);
        assert!(KafkaArtefacts::in_folder(&dir.path().join("none")).is_err());
        assert_eq!(
            project_file().matches("<dependency>").count(),
            ARTEFACTS.len()
        );
    }
}
