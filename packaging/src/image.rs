//! The container image: an OCI layout, written file by file, without Docker.
//!
//! It has the paths, user, volumes and start command of `apache/kafka`, so existing uses of that
//! image work with the name replaced. It has two layers: programs and libraries of the build
//! machine ([`base`]), and Ottla.

pub mod base;
pub mod layout;

use anyhow::Result;

use ottla_workspace::workspace;

use crate::archive::Owner;
use crate::binary::Binary;
use crate::contents::{Contents, Entry, Item, Role, script_names};

/// As in `apache/kafka`. The group is root, so that the directories are writable for any user of
/// that group.
pub const USER: u64 = 1000;
pub const START: &str = "/etc/kafka/docker/run";
pub const SCRIPTS: &str = "/opt/kafka/bin";
pub const VOLUMES: [&str; 3] = [
    "/etc/kafka/secrets",
    "/mnt/shared/config",
    "/var/lib/kafka/data",
];
/// Directories that the node writes to.
const WRITTEN: [&str; 2] = ["/opt/kafka/config", "/opt/kafka/logs"];

const ACCOUNTS: &str =
    "root:x:0:0:root:/root:/bin/bash\nappuser:x:1000:1000::/opt/kafka:/bin/bash\n";
const GROUPS: &str = "root:x:0:\nappuser:x:1000:\n";
/// Resolve host names from the file that the container runtime writes, then with DNS.
const NAMES: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The contents of Ottla's layer.
pub fn ottla(binary: &Binary) -> Result<Contents> {
    let mut all = Contents::new();
    let mut put = |path: &str, item, mode| {
        let role = Role::Plain;
        all.insert(path.to_owned(), Entry { item, mode, role })
    };
    let text = |text: &str| Item::File(text.as_bytes().to_vec());
    put("/usr/bin/ottla", Item::File(binary.bytes.clone()), 0o755);
    put(START, text(include_str!("../files/container/run")), 0o755);
    for name in script_names(binary)? {
        let link = Item::Link("../../../usr/bin/ottla".to_owned());
        put(&format!("{SCRIPTS}/{name}"), link, 0o777);
    }
    for path in VOLUMES.into_iter().chain(WRITTEN) {
        put(path, Item::Directory, 0o775);
    }
    put("/tmp", Item::Directory, 0o1777);
    put("/etc/passwd", text(ACCOUNTS), 0o644);
    put("/etc/group", text(GROUPS), 0o644);
    put("/etc/nsswitch.conf", text(NAMES), 0o644);
    for name in ["LICENSE", "NOTICE"] {
        let bytes = std::fs::read(workspace::root().join(name))?;
        put(
            &format!("/usr/share/doc/ottla/{name}"),
            Item::File(bytes),
            0o644,
        );
    }
    Ok(all)
}

/// The owner of a path in that layer.
pub fn owner(path: &str) -> Owner {
    let is_users = VOLUMES.iter().chain(&WRITTEN).any(|it| *it == path);
    match is_users {
        true => Owner {
            user: USER,
            group: 0,
        },
        false => Owner::default(),
    }
}
