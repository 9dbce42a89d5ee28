//! Records: produced, read, searched, exported and sent again.

use anyhow::{Context, Result, bail, ensure};
use ottla_testkit::words;
use serde_json::{Value, json};

use super::stage::Stage;

pub fn produce(stage: &Stage) -> Result<()> {
    let record = |number: i32| {
        json!({"partition": number % 3, "key": format!("user-{number}"),
            "value": format!("{{\"amount\": {number}, \"name\": \"<b>{number}</b>\"}}"),
            "headers": [{"key": "source", "value": "web"}], "timestamp": 1_700_000_000_000_i64 + i64::from(number)})
    };
    let records: Vec<Value> = (0..9).map(record).collect();
    let produced = stage.post("/api/topics/orders/records", &json!({"records": records}))?;
    ensure!(produced["items"][8]["offset"] == 2, "{produced}");
    let binary =
        json!({"records": [{"partition": 0, "key": null, "value": "fffe00", "encoding": "hex"}]});
    stage.post("/api/topics/orders/records", &binary)?;
    let tombstone = json!({"records": [{"partition": 1, "key": "gone", "value": null}]});
    stage.post("/api/topics/orders/records", &tombstone)?;
    stage.tool_shows(
        &["get-offsets", "--topic", "orders"],
        &["orders:0:4", "orders:1:4", "orders:2:3"],
    )?;
    let printed = stage.tool(&words(
        "console-consumer --topic orders --partition 2 --offset earliest \
         --max-messages 3 --property print.key=true --property print.headers=true \
         --property print.timestamp=true",
    ))?;
    let line =
        "CreateTime:1700000000005\tsource:web\tuser-5\t{\"amount\": 5, \"name\": \"<b>5</b>\"}";
    ensure!(printed.contains(line), "{printed}");
    let wrong = json!({"records": [{"partition": 7, "value": "x"}]});
    let (status, detail) =
        stage
            .http
            .refused("POST", "/api/topics/orders/records", Some(&wrong))?;
    ensure!(
        status == 422 && detail.contains("no partition 7"),
        "{status} {detail}"
    );
    Ok(())
}

pub fn read_pages(stage: &Stage) -> Result<()> {
    let records = "/api/topics/orders/records";
    let (mut found, mut from, mut pages) = (Vec::new(), "beginning".to_owned(), 0);
    loop {
        let (page, done) = stage
            .http
            .records(&format!("{records}?from={from}&limit=4"))?;
        ensure!(page.len() <= 4, "{page:?}");
        found.extend(page);
        pages += 1;
        match done["next"].as_str() {
            Some(next) => from = next.to_owned(),
            None => break,
        }
        ensure!(pages < 10, "no end of pages");
    }
    let mut places: Vec<(i64, i64)> = found.iter().map(place).collect();
    places.sort_unstable();
    let expected: Vec<(i64, i64)> = [(0, 4), (1, 4), (2, 3)]
        .iter()
        .flat_map(|(partition, end)| (0..*end).map(|offset| (*partition, offset)))
        .collect();
    ensure!(
        places == expected && pages >= 3,
        "{pages} pages: {places:?}"
    );
    let binary = found
        .iter()
        .find(|it| place(it) == (0, 3))
        .context("the binary record")?;
    ensure!(
        binary["value"]["format"] == "hex" && binary["value"]["text"] == "fffe00",
        "{binary}"
    );
    ensure!(binary["key"].is_null(), "{binary}");
    let tombstone = found
        .iter()
        .find(|it| place(it) == (1, 3))
        .context("the tombstone")?;
    ensure!(
        tombstone["value"].is_null() && tombstone["key"]["text"] == "gone",
        "{tombstone}"
    );
    let count =
        |query: &str| anyhow::Ok(stage.http.records(&format!("{records}?{query}"))?.0.len());
    ensure!(count("from=offset:2&partitions=2")? == 1);
    ensure!(count("from=timestamp:1700000000007&until=timestamp:1700000000009")? == 2);
    ensure!(count("from=last:3")? == 3);
    ensure!(count("from=end")? == 0);
    let one = stage.http.get("/api/topics/orders/records/2/1")?;
    ensure!(
        one["key"]["text"] == "user-5" && one["headers"][0]["value"]["text"] == "web",
        "{one}"
    );
    ensure!(one["value"]["format"] == "json", "{one}");
    let (status, detail) = stage
        .http
        .refused("GET", "/api/topics/orders/records/2/99", None)?;
    ensure!(
        status == 404 && detail.contains("offset 99"),
        "{status} {detail}"
    );
    Ok(())
}

fn place(record: &Value) -> (i64, i64) {
    let number = |name: &str| record[name].as_i64().unwrap_or(-1);
    (number("partition"), number("offset"))
}

pub fn search(stage: &Stage) -> Result<()> {
    let count = |filter: &str| {
        let path = format!("/api/topics/orders/records?from=beginning&{filter}");
        let (found, done) = stage.http.records(&path)?;
        ensure!(
            done["scanned"] == 11 && done["fraction"] == 1.0,
            "{filter}: {done}"
        );
        anyhow::Ok(found.len())
    };
    ensure!(count("text=USER-3")? == 1, "by text");
    ensure!(count("key=user-4")? == 1, "by key");
    // $.amount > 6
    ensure!(
        count("json_path=%24.amount%20%3E%206")? == 2,
        "by JSON path"
    );
    // value.amount < 3 && headers.source == "web" || key == "gone"
    let expression = "value.amount%20%3C%203%20%26%26%20headers.source%20%3D%3D%20%22web%22%20%7C%7C%20key%20%3D%3D%20%22gone%22";
    ensure!(
        count(&format!("expression={expression}"))? == 4,
        "by expression"
    );
    ensure!(count("text=nothing-like-it")? == 0);
    Ok(())
}

/// Records of all compressions and of a transaction. A search must find the same records as a scan
/// of all records.
pub fn search_varied(stage: &Stage) -> Result<()> {
    const NAMES: [&str; 6] = ["Anna", "ANNA", "Berta", "Grüße", "GRÜßE", "\\u0041nna"];
    let create = ["topics", "--create", "--topic", "varied"];
    let of = ["--partitions", "2", "--replication-factor", "1"];
    stage.tool(&[&create[..], &of].concat())?;
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let name = |number: usize| NAMES[number % NAMES.len()];
        let line = |number| format!("{{\"n\": {number}, \"name\": \"{}\"}}\n", name(number));
        let lines: String = (0..40).map(line).collect();
        let produce = ["console-producer", "--topic", "varied"];
        let produce = [&produce[..], &["--compression-codec", codec]].concat();
        stage.tool_with_input(&produce, &lines)?;
    }
    let payloads = stage.dir.join("payloads");
    std::fs::write(&payloads, "an ANNA in a transaction\nnothing\n")?;
    let payloads = payloads.to_str().context("a folder that is no UTF-8")?;
    let produce = ["producer-perf-test", "--topic", "varied", "--num-records"];
    let how = ["60", "--throughput", "-1", "--transactional-id", "varied"];
    stage.tool(&[&produce[..], &how, &["--payload-file", payloads]].concat())?;
    let read = |filter: &str| {
        let path = "/api/topics/varied/records?from=beginning&limit=10000";
        let (mut found, done) = stage.http.records(&format!("{path}&{filter}"))?;
        ensure!(done["scanned"] == 260, "{filter}: {done}");
        found.sort_by_key(|it| (it["partition"].as_i64(), it["offset"].as_i64()));
        anyhow::Ok(found)
    };
    let all = read("")?;
    ensure!(all.len() == 260, "{} records", all.len());
    let text_of = |it: &Value| it["value"]["text"].as_str().unwrap_or_default().to_owned();
    let check = |filter: &str, wanted: &str, is_wanted: &dyn Fn(&str) -> bool| {
        let expected = all.iter().filter(|it| is_wanted(&text_of(it)));
        let expected: Vec<&Value> = expected.collect();
        let encoded: String = wanted.bytes().map(|it| format!("%{it:02X}")).collect();
        let found = read(&format!("{filter}={encoded}"))?;
        ensure!(
            found.iter().eq(expected.iter().copied()),
            "{filter}={wanted} finds {} of {} records",
            found.len(),
            expected.len()
        );
        anyhow::Ok(())
    };
    for text in ["anna", "BERTA", "grüße", "\"n\": 3", "transaction", "none"] {
        let lower = text.to_lowercase();
        check("text", text, &|it| it.to_lowercase().contains(&lower))?;
    }
    // In JSON, a name can be written with escapes.
    check("expression", "value.name == 'Anna'", &|it| {
        let value: Value = serde_json::from_str(it).unwrap_or_default();
        value["name"] == "Anna"
    })?;
    stage.tool(&["topics", "--delete", "--topic", "varied"])?;
    Ok(())
}

pub fn live_tail(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/records?from=end&follow=true&text=late";
    let mut tail = stage.http.send("GET", path, None)?;
    ensure!(tail.status == 200, "status {}", tail.status);
    tail.wait_for("progress", |event, _| event == "progress")?;
    stage.tool_with_input(&["console-producer", "--topic", "orders"], "early\nlate\n")?;
    let records = tail.wait_for("records", |event, _| event == "records")?;
    ensure!(records[0]["value"]["text"] == "late", "{records}");
    let progress = tail.wait_for("progress", |event, data| {
        event == "progress" && data["scanned"] == 2
    })?;
    ensure!(
        progress["matched"] == 1 && progress["fraction"].is_null(),
        "{progress}"
    );
    Ok(())
}

pub fn export(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/export?from=beginning&partitions=0,1&download=1";
    let lines = stage.http.send("GET", path, None)?.text()?;
    let records: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let binary = records
        .iter()
        .find(|it| place(it) == (0, 3))
        .context("the binary record")?;
    ensure!(
        binary["value"] == "//4A" && binary["base64"][0] == "value",
        "{binary}"
    );
    ensure!(records.iter().any(|it| it["key"] == "user-4"), "{lines}");
    let csv = stage
        .http
        .send("GET", &format!("{path}&as=csv&text=user-4"), None)?
        .text()?;
    let wanted =
        "1,1,1700000000004,\"user-4\",\"{\"\"amount\"\": 4, \"\"name\"\": \"\"<b>4</b>\"\"}\"";
    ensure!(csv.contains(wanted), "{csv}");
    Ok(())
}

pub fn redrive(stage: &Stage) -> Result<()> {
    stage.post("/api/topics", &json!({"name": "again", "partitions": 3}))?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "again"],
        &["PartitionCount: 3"],
    )?;
    let path = "/api/topics/orders/redrive";
    let matching = json!({"from": "beginning", "expression": "value.amount >= 7"});
    let mut redrive =
        json!({"to": "again", "matching": matching, "keep_partition": true, "preview": true});
    let (_, done) = stage.http.stream("POST", path, Some(&redrive))?;
    ensure!(done["matched"] == 2 && done["sent"] == 0, "{done}");
    let offsets = ["get-offsets", "--topic", "again"];
    stage.tool_shows(&offsets, &["again:0:0", "again:1:0", "again:2:0"])?;
    // Records written after the preview are not counted, and not sent.
    let late = json!({"records": [{"partition": 2, "key": "late", "value": "{\"amount\": 99}"}]});
    stage.post("/api/topics/orders/records", &late)?;
    redrive["preview"] = json!(false);
    let (status, detail) = stage.http.refused("POST", path, Some(&redrive))?;
    ensure!(
        status == 422 && detail.contains("token is missing"),
        "{status} {detail}"
    );
    redrive["ranges"] = done["ranges"].clone();
    redrive["token"] = done["token"].clone();
    redrive["topic_id"] = json!("AAAAAAAAAAAAAAAAAAAAAQ");
    let (status, detail) = stage.http.refused("POST", path, Some(&redrive))?;
    ensure!(
        status == 409 && detail.contains("created again"),
        "{status} {detail}"
    );
    redrive["topic_id"] = done["topic_id"].clone();
    // Only counted records are sent: with other filters, none are sent.
    let confirmed = redrive["matching"].take();
    redrive["matching"] = json!({"from": "beginning", "expression": "value.amount >= 0"});
    let (status, detail) = stage.http.refused("POST", path, Some(&redrive))?;
    ensure!(
        status == 409 && detail.contains("other filters"),
        "{status} {detail}"
    );
    redrive["matching"] = confirmed;
    let (_, done) = stage.http.stream("POST", path, Some(&redrive))?;
    ensure!(done["sent"] == 2 && done["ranges"] == json!([]), "{done}");
    // The same request again sends nothing.
    let (status, detail) = stage.http.refused("POST", path, Some(&redrive))?;
    ensure!(
        status == 409 && detail.contains("was used"),
        "{status} {detail}"
    );
    ensure!(done["unknown_records"] == 0, "{done}");
    // 7 was in partition 1, 8 in partition 2.
    stage.tool_shows(&offsets, &["again:0:0", "again:1:1", "again:2:1"])?;
    let mut named = json!({"to": "again", "records": [{"partition": 0, "offset": 3}], "keep_partition": true, "preview": true});
    let (_, done) = stage.http.stream("POST", path, Some(&named))?;
    ensure!(done["matched"] == 1 && done["sent"] == 0, "{done}");
    named["preview"] = json!(false);
    named["token"] = done["token"].clone();
    let (_, done) = stage.http.stream("POST", path, Some(&named))?;
    ensure!(done["sent"] == 1, "{done}");
    stage.tool_shows(&offsets, &["again:0:1"])?;
    let printed = stage.tool(&words(
        "console-consumer --topic again --partition 2 --offset earliest \
         --max-messages 1 --property print.key=true --property print.headers=true \
         --property print.timestamp=true",
    ))?;
    ensure!(
        printed.contains("CreateTime:1700000000008\tsource:web\tuser-8\t"),
        "{printed}"
    );
    Ok(())
}

/// Many live tails of large records: those for which there is no memory leave the records out, or do not start.
fn large_in_many_tabs(stage: &Stage, path: &str) -> Result<()> {
    const MOST: usize = 12;
    let mut open = Vec::new();
    while open.len() < MOST {
        let mut tail = stage.http.send("GET", path, None)?;
        if tail.status == 503 {
            return Ok(());
        }
        let both = |event: &str, data: &Value| {
            let count = |name: &str| data[name].as_u64().unwrap_or_default();
            event == "progress" && count("scanned") + count("unjudged") == 2
        };
        let progress = tail.wait_for("both records", both)?;
        if progress["unjudged"] != 0 {
            return Ok(());
        }
        open.push(tail);
    }
    bail!("{MOST} live tails keep records of 10 MB in memory")
}

/// The largest records that a topic takes: cut in a list, found by their last bytes, and whole when
/// they are opened or exported.
pub fn large(stage: &Stage) -> Result<()> {
    const BYTES: usize = 10_000_000;
    let configs = json!({"max.message.bytes": "12000000"});
    let topic = json!({"name": "large", "partitions": 1, "configs": configs});
    stage.post("/api/topics", &topic)?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "large"],
        &["PartitionCount: 1"],
    )?;
    let value = format!("{}needle", "x".repeat(BYTES - "needle".len()));
    let path = "/api/topics/large/records";
    stage.post(path, &json!({"records": [{"key": "big", "value": value}]}))?;
    // Half as many bytes, which are no text.
    let binary = json!({"value": "fe".repeat(BYTES / 2), "encoding": "hex"});
    stage.post(path, &json!({"records": [binary]}))?;
    let (found, done) = stage
        .http
        .records(&format!("{path}?from=beginning&text=NEEDLE"))?;
    ensure!(found.len() == 1 && done["scanned"] == 2, "{done}");
    let shown = &found[0]["value"];
    let length = shown["text"].as_str().map_or(0, str::len);
    ensure!(
        shown["cut"] == true && shown["bytes"] == BYTES && (1..=2048).contains(&length),
        "{length} bytes are shown of {}",
        shown["bytes"]
    );
    let whole = stage.http.get(&format!("{path}/0/0"))?;
    ensure!(
        whole["value"]["cut"] == false && whole["value"]["text"] == value.as_str(),
        "it is not whole"
    );
    let whole = stage.http.get(&format!("{path}/0/1"))?;
    ensure!(
        whole["value"]["format"] == "hex" && whole["value"]["bytes"] == BYTES / 2,
        "it is {}",
        whole["value"]["format"]
    );
    let export = "/api/topics/large/export?from=beginning&key=big";
    let lines = stage.http.send("GET", export, None)?.text()?;
    ensure!(lines.lines().count() == 1 && lines.contains(&value), "cut");
    large_in_many_tabs(stage, &format!("{path}?from=beginning&follow=true"))?;
    stage
        .http
        .json("DELETE", "/api/topics/large?confirm=large", None)?;
    Ok(())
}
