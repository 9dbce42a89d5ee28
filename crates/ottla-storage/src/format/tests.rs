use ottla_config::single_node_properties;
use ottla_metadata::feature::FEATURES;

use super::*;
use crate::metadata::snapshot_file::read_snapshot;

fn config(dir: &Path, settings: &[(&str, &str)]) -> BrokerConfig {
    let mut properties = single_node_properties(
        &dir.display().to_string(),
        "localhost:9092",
        "localhost:9093",
    );
    for (key, value) in settings {
        properties.set(key, value);
    }
    BrokerConfig::from_properties(&properties).unwrap().0
}

fn options(quorum: InitialQuorum) -> FormatOptions {
    FormatOptions {
        cluster_id: "MkU3OEVBNTcwNTJENDM2Qg".to_owned(),
        quorum,
        metadata_version: MetadataVersion::LATEST_PRODUCTION,
        feature_levels: BTreeMap::new(),
        scram_records: Vec::new(),
        ignore_formatted: false,
    }
}

#[test]
fn a_standalone_node_stores_itself_as_a_voter() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[]);
    assert_eq!(read_identity(&config), Ok(None));
    let report = format(&config, &options(InitialQuorum::Standalone)).unwrap();
    assert_eq!(
        report.formatted,
        [(dir.path().to_owned(), "dynamic metadata voter directory")]
    );
    let identity = read_identity(&config).unwrap().unwrap();
    assert_eq!(identity.cluster_id, "MkU3OEVBNTcwNTJENDM2Qg");
    assert_eq!(
        identity.directory_ids[dir.path()],
        identity.metadata_directory_id
    );

    let quorum = dir
        .path()
        .join("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint");
    let snapshot = read_snapshot(&quorum).unwrap();
    assert_eq!(snapshot.kraft_version, KRaftVersion::V1);
    let voters = snapshot.voters.unwrap();
    let voter = voters.voter(BrokerId(1)).unwrap();
    assert_eq!(voter.key.directory_id, Some(identity.metadata_directory_id));
    assert_eq!(
        (&*voter.endpoints[0].name, voter.endpoints[0].port),
        ("CONTROLLER", 9093)
    );

    let bootstrap = read_snapshot(&dir.path().join("bootstrap.checkpoint")).unwrap();
    // One for metadata.version, and none for kraft.version, which is in the snapshot of the quorum.
    assert_eq!(bootstrap.records.len(), 1 + FEATURES.len() - 1);
}

#[test]
fn static_voters_are_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(
        dir.path(),
        &[("controller.quorum.voters", "1@localhost:9093")],
    );
    let report = format(&config, &options(InitialQuorum::Static)).unwrap();
    assert_eq!(
        report.formatted,
        [(dir.path().to_owned(), "metadata directory")]
    );
    assert!(!dir.path().join(METADATA_DIR).exists());
}

#[test]
fn formatted_directories_are_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let both = format!("{},{}", one.display(), two.display());
    let config_one = config(&one, &[]);
    format(&config_one, &options(InitialQuorum::Standalone)).unwrap();
    let before = std::fs::read(one.join("meta.properties")).unwrap();

    let config = config(dir.path(), &[("log.dirs", &both)]);
    let error = format(&config, &options(InitialQuorum::Standalone)).unwrap_err();
    assert!(
        error
            .0
            .contains("is already formatted. Use --ignore-formatted"),
        "{error}"
    );
    assert!(!two.exists());

    let ignoring = FormatOptions {
        ignore_formatted: true,
        ..options(InitialQuorum::Standalone)
    };
    let other_cluster = FormatOptions {
        cluster_id: "other".to_owned(),
        ..ignoring.clone()
    };
    assert!(format(&config, &other_cluster).is_err());
    let report = format(&config, &ignoring).unwrap();
    assert_eq!(report.formatted, [(two.clone(), "data directory")]);
    assert_eq!(std::fs::read(one.join("meta.properties")).unwrap(), before);
    assert_eq!(
        read_identity(&config).unwrap().unwrap().directory_ids.len(),
        2
    );
}

#[test]
fn directories_of_different_nodes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let both = format!("{},{}", one.display(), two.display());
    format(&config(&one, &[]), &options(InitialQuorum::Standalone)).unwrap();
    let other = FormatOptions {
        cluster_id: "other".to_owned(),
        ..options(InitialQuorum::Standalone)
    };
    format(&config(&two, &[]), &other).unwrap();
    let error = read_identity(&config(dir.path(), &[("log.dirs", &both)])).unwrap_err();
    assert!(
        error.0.contains("give directories of one cluster"),
        "{error}"
    );

    let error = read_identity(&config(&one, &[("node.id", "7")])).unwrap_err();
    assert!(
        error.0.contains("belongs to node 1, but node.id is 7"),
        "{error}"
    );

    // Each directory must be formatted, including directories that were added.
    let three = dir.path().join("three");
    let with = |first: &Path, second: &Path| {
        let dirs = format!("{},{}", first.display(), second.display());
        config(dir.path(), &[("log.dirs", &dirs)])
    };
    let error = read_identity(&with(&three, &one)).unwrap_err();
    assert!(error.0.contains("but the metadata directory"), "{error}");
    let added = with(&one, &three);
    let error = read_identity(&added).unwrap_err();
    assert!(error.0.contains("three has no meta.properties"), "{error}");
    let ignoring = FormatOptions {
        ignore_formatted: true,
        ..options(InitialQuorum::Standalone)
    };
    format(&added, &ignoring).unwrap();
    let identity = read_identity(&added).unwrap().unwrap();
    assert_eq!(identity.directory_ids.len(), 2);
    std::fs::copy(one.join("meta.properties"), three.join("meta.properties")).unwrap();
    let error = read_identity(&with(&one, &three)).unwrap_err();
    assert!(error.0.contains("the same directory.id"), "{error}");
}

/// Every file below a directory with its content.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn only_empty_directories_are_formatted_automatically() {
    let in_use: [(&str, fn(&Path)); 3] = [
        ("__cluster_metadata-0", |dir| {
            std::fs::write(
                dir.join("__cluster_metadata-0/00000000000000000000.log"),
                b"x",
            )
            .unwrap();
        }),
        ("orders-0", |dir| {
            fs::create_dir(dir.join("orders-0")).unwrap()
        }),
        ("notes.txt", |dir| {
            std::fs::write(dir.join("notes.txt"), b"x").unwrap()
        }),
    ];
    for (named, fill) in in_use {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), &[]);
        format_standalone(&config).unwrap();
        fs::remove_file(dir.path().join("meta.properties")).unwrap();
        fill(dir.path());
        let before = tree(dir.path());
        let error = format_standalone(&config).unwrap_err().to_string();
        assert!(error.contains(&format!("it holds {named};")), "{error}");
        assert_eq!(not_formatted(&config), error);
        assert_eq!(tree(dir.path()), before, "{named}");
    }
}

#[test]
fn an_interrupted_formatting_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[]);
    format_standalone(&config).unwrap();
    fs::remove_file(dir.path().join("meta.properties")).unwrap();
    std::fs::write(dir.path().join("meta.properties.tmp"), b"version").unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    format_standalone(&config).unwrap();
    assert!(read_identity(&config).unwrap().is_some());
}

/// As Kafka 4.4 leaves it, which writes the snapshot before `meta.properties`.
#[test]
fn a_formatting_discards_the_snapshot_of_an_interrupted_one() {
    let voters = [("controller.quorum.voters", "1@localhost:9093")];
    let first = "00000000000000000000-0000000000.checkpoint";
    for (has_log, stays) in [(false, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(METADATA_DIR);
        format(
            &config(dir.path(), &[]),
            &options(InitialQuorum::Standalone),
        )
        .unwrap();
        fs::remove_file(dir.path().join("meta.properties")).unwrap();
        std::fs::write(log.join(format!("{first}.part")), b"x").unwrap();
        if has_log {
            std::fs::write(log.join("00000000000000000000.log"), b"x").unwrap();
        }
        let config = config(dir.path(), &voters);
        format(&config, &options(InitialQuorum::Static)).unwrap();
        assert!(read_identity(&config).unwrap().is_some());
        assert_eq!(log.join(first).exists(), stays);
        assert_eq!(log.join(format!("{first}.part")).exists(), stays);
    }
}

#[test]
fn the_suggested_format_command_fits_the_quorum() {
    let dir = tempfile::tempdir().unwrap();
    let dynamic = not_formatted(&config(dir.path(), &[]));
    assert!(dynamic.contains("--standalone"), "{dynamic}");
    let voters = [("controller.quorum.voters", "1@localhost:9093")];
    let of_voters = not_formatted(&config(dir.path(), &voters));
    assert!(!of_voters.contains("--standalone"), "{of_voters}");
}
