//! The files of an image, after <https://github.com/opencontainers/image-spec> version 1.0. Each
//! part is a file named by its SHA-256; the index refers to the manifest, and the manifest to the
//! configuration and the layers.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::archive;
use crate::binary::Binary;
use crate::contents::{Contents, Entry, HOMEPAGE, Item, LICENCE, Role, SUMMARY, VERSION};
use crate::image::{self, START, VOLUMES, base};
use crate::stamp::Stamp;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The image's name after `docker load`.
const NAME: &str = "docker.io/ottla/ottla";
const PATHS: &str =
    "PATH=/opt/kafka/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A compressed layer.
struct Layer {
    bytes: Vec<u8>,
    /// The digest of the uncompressed tar.
    diff_id: String,
    created_by: &'static str,
}

/// The files of an image: path within its folder, and contents.
pub fn image(binary: &Binary, stamp: &Stamp) -> Result<Contents> {
    let owned_by_root = |_: &str| archive::Owner::default();
    let layer = |contents: &Contents, owner: &dyn Fn(&str) -> archive::Owner, created_by| {
        let bytes = archive::tar_gz(contents, owner, stamp.time, stamp.level)?;
        let diff_id = digest(&uncompressed(&bytes)?);
        anyhow::Ok(Layer {
            bytes,
            diff_id,
            created_by,
        })
    };
    let layers = [
        layer(
            &base::layer(binary)?,
            &owned_by_root,
            "a shell, tools and libraries",
        )?,
        layer(&image::ottla(binary)?, &image::owner, "Ottla")?,
    ];
    let mut all = Contents::new();
    let mut put = |path: String, bytes| {
        let (item, role) = (Item::File(bytes), Role::Plain);
        all.insert(
            path,
            Entry {
                item,
                mode: 0o644,
                role,
            },
        )
    };
    let mut blob = |kind: &str, bytes: Vec<u8>| {
        let digest = digest(&bytes);
        let descriptor = json!({"mediaType": kind, "digest": digest, "size": bytes.len()});
        put(format!("/{}", path_of(&digest)), bytes);
        descriptor
    };
    let configuration = blob(
        CONFIGURATION,
        serde_json::to_vec(&configuration(binary, stamp, &layers)?)?,
    );
    let descriptors: Vec<Value> = layers.into_iter().map(|it| blob(LAYER, it.bytes)).collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": configuration, "layers": descriptors,
    });
    let mut manifest_in_index = blob(MANIFEST, serde_json::to_vec(&manifest)?);
    manifest_in_index["platform"] =
        json!({"architecture": binary.architecture.debian(), "os": "linux"});
    manifest_in_index["annotations"] = json!({
        "org.opencontainers.image.ref.name": VERSION,
        "io.containerd.image.name": format!("{NAME}:{VERSION}"),
    });
    let index = json!({"schemaVersion": 2, "manifests": [manifest_in_index]});
    put("/index.json".into(), serde_json::to_vec(&index)?);
    put(
        "/oci-layout".into(),
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    );
    // For `docker load` without support for OCI layouts (before version 25).
    let path = |descriptor: &Value| descriptor["digest"].as_str().map(path_of);
    let for_docker = json!([{
        "Config": path(&manifest["config"]),
        "RepoTags": [format!("{}:{VERSION}", NAME.trim_start_matches("docker.io/"))],
        "Layers": descriptors.iter().map(path).collect::<Vec<_>>(),
    }]);
    put("/manifest.json".into(), serde_json::to_vec(&for_docker)?);
    Ok(all)
}

fn configuration(binary: &Binary, stamp: &Stamp, layers: &[Layer]) -> Result<Value> {
    let created = jiff::Timestamp::from_second(stamp.time.into())?.to_string();
    let volumes: serde_json::Map<String, Value> = VOLUMES
        .iter()
        .map(|it| ((*it).to_owned(), json!({})))
        .collect();
    let history: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"created": created, "created_by": layer.created_by}))
        .collect();
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    Ok(json!({
        "created": created,
        "architecture": binary.architecture.debian(),
        "os": "linux",
        "config": {
            "User": "appuser",
            "ExposedPorts": {"9092/tcp": {}},
            "Env": [PATHS, "LANG=C.UTF-8"],
            "Cmd": [START],
            "Volumes": volumes,
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "Ottla",
                "org.opencontainers.image.description": SUMMARY,
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.source": HOMEPAGE,
                "org.opencontainers.image.licenses": LICENCE,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }))
}

/// Writes an image to a folder.
pub fn write(image: &Contents, folder: &Path) -> Result<()> {
    for (path, entry) in image {
        let Item::File(bytes) = &entry.item else {
            continue;
        };
        let to = folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// An image that was read back, with every digest and size verified.
#[derive(Debug)]
pub struct ReadBack {
    pub configuration: Value,
    /// Compressed, lowest first.
    pub layers: Vec<Vec<u8>>,
}

pub fn read(folder: &Path) -> Result<ReadBack> {
    let document = |path: PathBuf| -> Result<Value> {
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    };
    let version = document(folder.join("oci-layout"))?;
    ensure!(
        version["imageLayoutVersion"] == "1.0.0",
        "oci-layout: {version}"
    );
    let blob = |descriptor: &Value| -> Result<Vec<u8>> {
        let named = descriptor["digest"]
            .as_str()
            .context("a descriptor without a digest")?;
        let bytes = fs::read(folder.join(path_of(named))).with_context(|| named.to_owned())?;
        ensure!(digest(&bytes) == named, "{named} has another digest");
        ensure!(
            descriptor["size"] == bytes.len(),
            "{named} is not of size {}",
            descriptor["size"]
        );
        Ok(bytes)
    };
    let index = document(folder.join("index.json"))?;
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])?)?;
    let configuration: Value = serde_json::from_slice(&blob(&manifest["config"])?)?;
    let layers = manifest["layers"]
        .as_array()
        .context("a manifest without layers")?;
    let layers: Vec<Vec<u8>> = layers.iter().map(blob).collect::<Result<_>>()?;
    let ids = configuration["rootfs"]["diff_ids"]
        .as_array()
        .context("no diff_ids")?;
    ensure!(
        ids.len() == layers.len(),
        "{} layers, {} diff_ids",
        layers.len(),
        ids.len()
    );
    for (id, layer) in ids.iter().zip(&layers) {
        ensure!(*id == digest(&uncompressed(layer)?), "a layer is not {id}");
    }
    Ok(ReadBack {
        configuration,
        layers,
    })
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// `sha256:ab…` -> `blobs/sha256/ab…`
fn path_of(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn uncompressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out)?;
    Ok(out)
}
