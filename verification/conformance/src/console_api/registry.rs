//! A schema registry for the test: two schemas, at the paths of Confluent's API.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Result;
use serde_json::json;

/// Starts it, for as long as the process runs. Returns its URL.
pub fn start() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The console reports missing data.
            let _ = answer(stream);
        }
    });
    Ok(url)
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request)?;
    let mut header = String::new();
    while stream.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, body) = match request.split(' ').nth(1).unwrap_or_default() {
        "/schemas/ids/1" => (200, json!({"schema": avro()})),
        "/schemas/ids/2" => (
            200,
            json!({"schemaType": "PROTOBUF", "schema": PROTOBUF, "references":
            [{"name": "place.proto", "subject": "place", "version": 4}]}),
        ),
        "/schemas/ids/1/versions" => (200, json!([{"subject": "weather-value", "version": 1}])),
        "/subjects/place/versions/4" => (200, json!({"schemaType": "PROTOBUF", "schema": PLACE})),
        _ => (
            404,
            json!({"error_code": 40403, "message": "Schema not found"}),
        ),
    };
    let body = body.to_string();
    let length = body.len();
    write!(
        stream.get_mut(),
        "HTTP/1.1 {status} Answer\r\nContent-Type: application/vnd.schemaregistry.v1+json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn avro() -> String {
    let fields = json!([
        {"name": "city", "type": "string"},
        {"name": "degrees", "type": ["null", "int"]},
    ]);
    json!({"type": "record", "name": "Weather", "fields": fields}).to_string()
}

const PROTOBUF: &str = "syntax = \"proto3\"; import \"place.proto\"; \
                        message Weather { Place place = 1; int32 degrees = 2; }";
const PLACE: &str = "syntax = \"proto3\"; message Place { string city_name = 1; }";
