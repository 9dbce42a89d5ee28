//! Embeds the files of the page, compressed: a table of path, content type, entity tag and gzip
//! data, in `assets.rs` of the output directory.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    println!("cargo::rerun-if-changed=assets");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut files: Vec<PathBuf> = fs::read_dir("assets")
        .expect("the crate has a folder assets")
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut table = String::from("const FILES: &[File] = &[\n");
    for path in files {
        let name = path.file_name().expect("a file").to_string_lossy();
        let bytes = fs::read(&path).expect("a file that can be read");
        let compressed = out.join(format!("{name}.gz"));
        fs::write(&compressed, gzip(&bytes)).expect("the output directory can be written");
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        writeln!(
            table,
            "    File {{ name: {name:?}, content_type: {:?}, etag: \"\\\"{:016x}\\\"\", gzip: include_bytes!({:?}) }},",
            content_type(&path),
            hasher.finish(),
            compressed.display().to_string(),
        )
        .expect("writing to a string");
    }
    table.push_str("];\n");
    fs::write(out.join("assets.rs"), table).expect("the output directory can be written");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|it| it.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("md") => "text/markdown; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        other => panic!("assets: no content type for {other:?}; add it to build.rs"),
    }
}
