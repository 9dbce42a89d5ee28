//! `config.providers`: values from files, directories or the environment, so that a properties file
//! need not contain secrets (KIP-297, KIP-632, KIP-993).
//!
//! `${file:/path:key}` is a key of another properties file, `${dir:/path:name}` the contents of a
//! file in a directory, `${env:NAME}` an environment variable. A value may contain several, also
//! within a JAAS entry. An unresolved variable is an error at start; Kafka leaves it in the value
//! as text. Dynamic settings can contain variables too: each broker resolves them with the providers
//! of its own properties file.
//!
//! Kafka: `AbstractConfig.resolveConfigVariables`, `ConfigTransformer`,
//! `org.apache.kafka.common.config.provider`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use ottla_config::{Properties, Variables};
use regex::Regex;

/// The kind of provider, identified by its Java class.
enum Kind {
    File,
    Directory,
    Environment,
}

struct Provider {
    kind: Kind,
    /// `allowed.paths`; `None` if every path is allowed.
    allowed_paths: Option<Vec<PathBuf>>,
    /// `allowlist.pattern` of the environment provider.
    allowlist: Option<Regex>,
}

const CLASSES: &str = "org.apache.kafka.common.config.provider.FileConfigProvider, \
                       DirectoryConfigProvider and EnvVarConfigProvider of the same package";

/// The maximum size of a file that a variable names.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Resolves the variables in all values, and makes those of dynamic settings resolvable.
pub fn resolve(properties: &mut Properties) -> Result<(), String> {
    let providers = providers(properties)?;
    if providers.is_empty() {
        return Ok(());
    }
    let (mut resolved, mut found) = (Vec::new(), Vec::new());
    for property in properties.effective() {
        if is_of_providers(&property.key) || !property.value.contains("${") {
            continue;
        }
        let mut find = |variable: &str, value: &str| {
            found.push((variable.to_owned(), value.to_owned()));
        };
        let value = resolve_value(&property.value, &providers, &mut find).map_err(|reason| {
            format!(
                "{}: {}: {reason}",
                properties.place(&property.key),
                property.key
            )
        })?;
        resolved.push((property.key.clone(), value));
    }
    for (key, value) in resolved {
        properties.replace(&key, &value);
    }
    for (variable, value) in found {
        properties.hide(&variable, &value);
    }
    let variables = Variables::new(move |value| resolve_value(value, &providers, &mut |_, _| {}));
    properties.set_variables(variables);
    Ok(())
}

/// Whether a setting is about the providers themselves.
pub fn is_of_providers(key: &str) -> bool {
    key == "config.providers" || key.starts_with("config.providers.")
}

fn providers(properties: &Properties) -> Result<BTreeMap<String, Provider>, String> {
    let names = properties.value("config.providers").unwrap_or_default();
    let names = names.split(',').map(str::trim);
    let mut providers = BTreeMap::new();
    for name in names.filter(|name| !name.is_empty()) {
        let key = format!("config.providers.{name}.class");
        let place = || properties.place("config.providers");
        let class = properties.value(&key).map(str::trim);
        let class = class.ok_or_else(|| {
            format!(
                "{}: config.providers has {name}, and {key} is missing; there are {CLASSES}",
                place()
            )
        })?;
        let kind = match class.strip_prefix("org.apache.kafka.common.config.provider.") {
            Some("FileConfigProvider") => Kind::File,
            Some("DirectoryConfigProvider") => Kind::Directory,
            Some("EnvVarConfigProvider") => Kind::Environment,
            _ => {
                return Err(format!(
                    "{}: {key}={class} is a Java class, which Ottla cannot load; there are {CLASSES}",
                    properties.place(&key)
                ));
            }
        };
        let parameter = |parameter: &str| {
            let key = format!("config.providers.{name}.param.{parameter}");
            let value = properties.value(&key)?.trim();
            (!value.is_empty()).then(|| (key, value.to_owned()))
        };
        let allowed_paths = match parameter("allowed.paths") {
            Some((key, value)) => Some(allowed_paths(&value).map_err(|reason| {
                format!("{}: {key}={value}: {reason}", properties.place(&key))
            })?),
            None => None,
        };
        let allowlist = match parameter("allowlist.pattern") {
            Some((key, value)) => Some(Regex::new(&format!("^(?:{value})$")).map_err(|error| {
                format!(
                    "{}: {key}={value} is not a pattern: {error}",
                    properties.place(&key)
                )
            })?),
            None => None,
        };
        let provider = Provider {
            kind,
            allowed_paths,
            allowlist,
        };
        providers.insert(name.to_owned(), provider);
    }
    Ok(providers)
}

fn allowed_paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let paths = text.split(',').map(|path| PathBuf::from(path.trim()));
    paths
        .map(|path| match (path.is_absolute(), path.exists()) {
            (false, _) => Err(format!("{} is not absolute", path.display())),
            (_, false) => Err(format!("{} does not exist", path.display())),
            _ => Ok(normal(&path)),
        })
        .collect()
}

/// Removes `.` and `..`, so that a path cannot leave an allowed directory.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Resolves the variables of one value. Replacements are not resolved again. Each variable is passed
/// to `find`, with its value.
fn resolve_value(
    value: &str,
    providers: &BTreeMap<String, Provider>,
    find: &mut dyn FnMut(&str, &str),
) -> Result<String, String> {
    let mut resolved = String::new();
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let variable = &rest[start..=start + length];
        let inside = &variable[2..variable.len() - 1];
        resolved.push_str(&rest[..start]);
        let provider = inside
            .split_once(':')
            .and_then(|(name, rest)| Some((providers.get(name)?, rest)));
        match provider {
            Some((provider, rest)) => {
                let (path, key) = rest.split_once(':').unwrap_or(("", rest));
                let found = provider.get(path, key);
                let found = found.map_err(|reason| format!("{variable}: {reason}"))?;
                find(variable, &found);
                resolved.push_str(&found);
            }
            // Not a configured provider: a value may contain other braces.
            None => resolved.push_str(variable),
        }
        rest = &rest[start + length + 1..];
    }
    resolved.push_str(rest);
    Ok(resolved)
}

/// The contents of a file that a variable names. Dynamic settings can name any file, and one that is
/// not regular could make the broker wait forever, or have no end.
fn text_of(file: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> {
        if !fs::metadata(file)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        let mut start = File::open(file)?.take(MAX_FILE_BYTES + 1);
        match start.read_to_string(&mut text)? as u64 > MAX_FILE_BYTES {
            true => Err(io::Error::other("it has more than 1 MiB")),
            false => Ok(text),
        }
    };
    read().map_err(|error| format!("the file cannot be read: {error}"))
}

impl Provider {
    fn get(&self, path: &str, key: &str) -> Result<String, String> {
        match self.kind {
            Kind::Environment => {
                if !path.is_empty() {
                    return Err(
                        "a variable of the environment has no path; write ${env:NAME}".to_owned(),
                    );
                }
                if self.allowlist.as_ref().is_some_and(|it| !it.is_match(key)) {
                    return Err("param.allowlist.pattern does not allow this name".to_owned());
                }
                std::env::var(key).map_err(|_| "the environment has no such variable".to_owned())
            }
            Kind::File => {
                let file = self.allowed(Path::new(path))?;
                let text = text_of(&file)?;
                let properties = Properties::parse(&text, path)
                    .map_err(|_| "the file is not a properties file".to_owned())?;
                let value = properties.value(key).map(str::to_owned);
                value.ok_or_else(|| "the file has no such key".to_owned())
            }
            Kind::Directory => {
                let file = self.allowed(&Path::new(path).join(key))?;
                text_of(&file)
            }
        }
    }

    fn allowed(&self, path: &Path) -> Result<PathBuf, String> {
        let path = normal(path);
        let Some(allowed) = &self.allowed_paths else {
            return Ok(path);
        };
        match allowed.iter().any(|allowed| path.starts_with(allowed)) {
            true => Ok(path),
            false => Err("param.allowed.paths does not contain it".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: &str = "org.apache.kafka.common.config.provider";

    fn resolved(text: &str) -> Result<Properties, String> {
        let mut properties = Properties::parse(text, "server.properties").unwrap();
        resolve(&mut properties)?;
        Ok(properties)
    }

    #[test]
    fn files_directories_and_the_environment_provide_values() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        std::fs::write(dir.path().join("secrets"), "user=alice\npassword=hu=sh\n").unwrap();
        std::fs::write(dir.path().join("token"), "a${file:b:c}").unwrap();
        let home = std::env::var("HOME").unwrap_or_default();
        let settings = format!(
            "config.providers=file,dir,env\nconfig.providers.file.class={PACKAGE}.FileConfigProvider\n\
             config.providers.dir.class={PACKAGE}.DirectoryConfigProvider\n\
             config.providers.env.class={PACKAGE}.EnvVarConfigProvider\n"
        );
        let text = format!(
            "{settings}jaas=M required username=\"${{file:{at}/secrets:user}}\" \
             password=\"${{file:{at}/secrets:password}}\";\ntoken=<${{dir:{at}:token}}>\n\
             home=${{env:HOME}}\nother=${{user.home}} ${{vault:a}}\n"
        );
        let properties = resolved(&text).unwrap();
        assert_eq!(
            properties.value("jaas"),
            Some("M required username=\"alice\" password=\"hu=sh\";")
        );
        assert_eq!(properties.value("token"), Some("<a${file:b:c}>"));
        assert_eq!(properties.value("home"), Some(home.as_str()));
        assert_eq!(properties.value("other"), Some("${user.home} ${vault:a}"));
        assert_eq!(properties.place("token"), "server.properties line 6");

        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("in/x"), "k=v").unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
        for (line, says) in [
            (
                format!("a=${{file:{at}/secrets:none}}"),
                "the file has no such key",
            ),
            (format!("a=${{file:{at}/nothing:x}}"), "cannot be read"),
            (format!("a=${{dir:{at}:in}}"), "is not a regular file"),
            ("a=${file:/dev/zero:x}".to_owned(), "is not a regular file"),
            (format!("a=${{dir:{at}:large}}"), "more than 1 MiB"),
            (
                "a=${env:OTTLA_NO_SUCH_VARIABLE}".to_owned(),
                "no such variable",
            ),
            (
                format!(
                    "config.providers.file.param.allowed.paths={at}/in\na=${{file:{at}/in/../secrets:user}}"
                ),
                "param.allowed.paths does not contain it",
            ),
            (
                "config.providers.env.param.allowlist.pattern=KAFKA_.*\na=${env:HOME}".to_owned(),
                "does not allow this name",
            ),
            (
                "config.providers.file.param.allowed.paths=relative".to_owned(),
                "relative is not absolute",
            ),
        ] {
            let error = resolved(&format!("{settings}{line}\n")).unwrap_err();
            assert!(
                error.contains(says) && error.contains("server.properties line"),
                "{error}"
            );
            assert!(!error.contains("alice"), "{error}");
        }
        let allowed = format!(
            "{settings}config.providers.file.param.allowed.paths={at}/in\na=${{file:{at}/in/x:k}}\n"
        );
        assert_eq!(resolved(&allowed).unwrap().value("a"), Some("v"));
    }

    #[test]
    fn only_the_providers_of_kafka_are_supported() {
        let error = resolved("config.providers=v\nconfig.providers.v.class=com.example.Vault\n");
        assert!(error.unwrap_err().contains("a Java class"));
        let error = resolved("config.providers=v\n").unwrap_err();
        assert!(
            error.contains("config.providers.v.class is missing"),
            "{error}"
        );
        let untouched = resolved("a=${file:/x:y}\n").unwrap();
        assert_eq!(untouched.value("a"), Some("${file:/x:y}"));
    }
}
