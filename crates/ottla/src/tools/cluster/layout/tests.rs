use std::net::UdpSocket;

use super::*;

const WANTED: Wanted = Wanted {
    brokers: Some(4),
    controllers: None,
    port: Some(0),
    is_secure: false,
};

#[test]
fn up_to_three_brokers_are_controllers_by_default() {
    let nodes = new_nodes(WANTED).unwrap();
    let roles: Vec<_> = nodes.iter().map(NodeLayout::roles).collect();
    let both = "broker, controller";
    assert_eq!(roles, [both, both, both, "broker"]);
    let mut ports: Vec<u16> = nodes.iter().flat_map(NodeLayout::ports).collect();
    let first = ports[0];
    ports.sort_unstable();
    assert_eq!(ports, (first..first + 7).collect::<Vec<_>>());
    let apart = Wanted {
        brokers: Some(2),
        controllers: Some(1),
        port: Some(9092),
        is_secure: false,
    };
    let nodes = new_nodes(apart).unwrap();
    let seen: Vec<_> = nodes
        .iter()
        .map(|node| (node.id, node.port, node.controller_port))
        .collect();
    assert_eq!(
        seen,
        [
            (1, Some(9092), None),
            (2, Some(9093), None),
            (101, None, Some(9094))
        ]
    );
    let too_high = Wanted {
        port: Some(65_530),
        ..WANTED
    };
    assert!(new_nodes(too_high).unwrap_err().contains("7 ports"));
}

#[test]
fn a_directory_keeps_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    // Properties files are not in UTF-8.
    let dir = dir.path().join("cl\u{fc}ster \u{20ac}");
    let made = Layout::open(&dir, WANTED).unwrap();
    made.prepare().unwrap();
    assert!(dir.join("node-1/data/meta.properties").exists());
    let in_use = Layout::open(&dir, WANTED).unwrap_err();
    assert!(in_use.contains("is in use by another"), "{in_use}");
    let (id, nodes) = (made.cluster_id.clone(), made.nodes.clone());
    drop(made);
    let as_it_was = Wanted {
        brokers: None,
        controllers: None,
        port: None,
        is_secure: false,
    };
    let again = Layout::open(&dir, as_it_was).unwrap();
    assert_eq!((&again.cluster_id, &again.nodes), (&id, &nodes));
    again.prepare().unwrap();
    drop(again);
    let larger = Wanted {
        brokers: Some(5),
        ..as_it_was
    };
    let refused = Layout::open(&dir, larger).unwrap_err();
    assert!(refused.contains("--brokers 5"), "{refused}");
    assert!(refused.contains("was created with 4"), "{refused}");
    let secure = Wanted {
        is_secure: true,
        ..as_it_was
    };
    let refused = Layout::open(&dir, secure).unwrap_err();
    assert!(
        refused.contains("--secure") && refused.contains("created without it"),
        "{refused}"
    );
    let file = dir.join(CLUSTER_FILE);
    fs::write(&file, "cluster.id=x\nnodes=1\nnode.1.port=many\n").unwrap();
    let damaged = Layout::open(&dir, as_it_was).unwrap_err();
    assert!(
        damaged.contains("node.1.port=many is not a port"),
        "{damaged}"
    );
}

#[test]
fn a_secure_cluster_stays_secure() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cluster");
    let secure = Wanted {
        is_secure: true,
        ..WANTED
    };
    let made = Layout::open(&dir, secure).unwrap();
    made.prepare().unwrap();
    let text = fs::read_to_string(made.properties_file(&made.nodes[0])).unwrap();
    for line in [
        "listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "super.users=User:node;User:admin",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
    }
    let password = fs::read(dir.join("secrets.properties")).unwrap();
    drop(made);
    let as_it_was = Wanted {
        brokers: None,
        ..WANTED
    };
    let again = Layout::open(&dir, as_it_was).unwrap();
    assert!(again.secured.is_some());
    again.prepare().unwrap();
    assert_eq!(fs::read(dir.join("secrets.properties")).unwrap(), password);
}

#[test]
fn a_foreign_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "").unwrap();
    let refused = Layout::open(dir.path(), WANTED).unwrap_err();
    assert!(refused.contains("is not empty"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn the_error_names_a_port_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cluster");
    let first = ottla_ports::lease_range(7).unwrap();
    // The controller port of the second node.
    let port = first + 5;
    let taken = TcpListener::bind((HOST, port)).unwrap();
    let wanted = Wanted {
        port: Some(first),
        ..WANTED
    };
    let refused = Layout::open(&dir, wanted).unwrap_err();
    assert!(
        refused.starts_with(&format!("node 2 cannot listen on {HOST}:{port}: process ")),
        "{refused}"
    );
    let user = format!("process {} (", std::process::id());
    assert!(refused.contains(&user), "{refused}");
    assert!(
        refused.contains("--port PORT (0 for free ports)"),
        "{refused}"
    );
    assert!(!dir.exists(), "nothing is written");
    // The advice in the message must work.
    let made = Layout::open(&dir, WANTED).unwrap();
    let made_port = made.nodes[1].controller_port.unwrap();
    drop((made, taken));
    let _taken = TcpListener::bind((HOST, made_port)).unwrap();
    let as_it_was = Wanted {
        brokers: None,
        ..WANTED
    };
    let refused = Layout::open(&dir, as_it_was).unwrap_err();
    assert!(refused.contains("this one keeps its ports"), "{refused}");
}

/// Otherwise a cluster at free ports could take the port of a node that is down.
#[test]
fn the_ports_of_a_cluster_are_leased_at_every_start() {
    // As another process leases a block of `ottla_ports`: by its UDP port, which is none of the leases
    // of this process.
    let block = (0..680_u16).rev().find_map(|number| {
        let first = 10_000 + 32 * number;
        let lease = UdpSocket::bind((HOST, 32_000 + number)).ok()?;
        let is_free = |port: u16| TcpListener::bind((HOST, port)).is_ok();
        (is_free(first) && is_free(first + 1)).then_some((lease, first))
    });
    let (lease, first) = block.expect("a block that is not leased");
    let udp_port = lease.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cluster");
    let new = Wanted {
        brokers: Some(1),
        port: Some(first),
        ..WANTED
    };
    let as_it_was = Wanted {
        brokers: None,
        port: None,
        ..WANTED
    };
    let process = std::process::id();
    let last = first + 31;
    let warning = format!("ports {first} to {last} are leased by process {process} (");
    for wanted in [new, as_it_was] {
        let warnings = Layout::open(&dir, wanted).unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(&warning), "{warnings:?}");
    }
    drop(lease);
    let _cluster = Layout::open(&dir, as_it_was).unwrap();
    let refused = UdpSocket::bind((HOST, udp_port)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrInUse);
}

/// A sandbox may have no UDP, and the nodes need none.
#[test]
fn a_cluster_whose_ports_cannot_be_leased_is_warned_of_it() {
    let refused = Err(ErrorKind::PermissionDenied.into());
    let warnings = warnings_of_leases(refused);
    assert_eq!(
        warnings,
        [
            "cannot lease the ports of the cluster: permission denied; another process may take the port of a node \
             that is down"
        ]
    );
}
