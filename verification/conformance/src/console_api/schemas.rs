//! Records that name a schema of a registry: shown, found and exported as JSON.

use anyhow::{Result, ensure};
use serde_json::json;

use super::stage::Stage;

/// The magic byte, the ID, and `{"city": "Ulm", "degrees": 21}`.
const AVRO: &str = "00 00000001 06556c6d 022a";
/// The same with the index of the message, and the city in a message of another file.
const PROTOBUF: &str = "00 00000002 00 0a050a03556c6d 1015";
const MISFIT: &str = "00 00000001 06556c";
const UNKNOWN: &str = "00 00000003 00";

pub fn decode(stage: &Stage) -> Result<()> {
    ensure!(stage.http.get("/api/session")?["registry"] == true);
    stage.post("/api/topics", &json!({"name": "weather", "partitions": 1}))?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "weather"],
        &["PartitionCount: 1"],
    )?;
    let record = |value| json!({"partition": 0, "key": null, "value": value, "encoding": "hex"});
    let records = [AVRO, PROTOBUF, MISFIT, UNKNOWN].map(record);
    let path = "/api/topics/weather/records";
    stage.post(path, &json!({"records": records}))?;

    let (found, _) = stage
        .http
        .records(&format!("{path}?from=beginning&limit=10"))?;
    let shown = |index: usize| {
        let value = &found[index]["value"];
        (value["format"].as_str(), value["text"].as_str())
    };
    ensure!(found.len() == 4, "{found:?}");
    let avro = r#"{"city":"Ulm","degrees":21}"#;
    let protobuf = r#"{"place":{"cityName":"Ulm"},"degrees":21}"#;
    ensure!(shown(0) == (Some("avro"), Some(avro)), "{}", found[0]);
    let schema = json!({"id": "1", "type": "avro", "subject": "weather-value"});
    ensure!(found[0]["value"]["schema"] == schema, "{}", found[0]);
    ensure!(
        shown(1) == (Some("protobuf"), Some(protobuf)),
        "{}",
        found[1]
    );
    for (index, reason) in [(2, "does not fit the Avro schema 1"), (3, "/schemas/ids/3")] {
        let value = &found[index]["value"];
        let problem = value["problem"].as_str().unwrap_or_default();
        ensure!(
            value["format"] == "hex" && problem.contains(reason),
            "{value}"
        );
    }

    let count = |filter: &str| {
        let path = format!("{path}?from=beginning&{filter}");
        anyhow::Ok(stage.http.records(&path)?.0.len())
    };
    // value.degrees == 21
    ensure!(count("expression=value.degrees%20%3D%3D%2021")? == 2);
    // $.place.cityName
    ensure!(count("json_path=%24.place.cityName")? == 1);
    ensure!(count("text=cityname")? == 1, "by a name of the JSON");
    let (found, _) = stage
        .http
        .records(&format!("{path}?from=beginning&format=protobuf"))?;
    let problem = found[0]["value"]["problem"].as_str().unwrap_or_default();
    ensure!(problem.contains("of type Avro"), "{}", found[0]);

    let export = "/api/topics/weather/export?from=beginning";
    let lines = stage.http.send("GET", export, None)?.text()?;
    ensure!(
        lines.contains(r#""value":"{\"city\":\"Ulm\",\"degrees\":21}""#),
        "{lines}"
    );
    let raw = format!("{export}&raw=true&as=csv");
    let lines = stage.http.send("GET", &raw, None)?.text()?;
    // The bytes of a record without a code above 127 are text.
    ensure!(!lines.contains("degrees"), "{lines}");
    stage
        .http
        .json("DELETE", "/api/topics/weather?confirm=weather", None)?;
    Ok(())
}
