use toml::Value;

use super::*;

const SMALLEST: &str = "title = 'x'\n[records]\nsize = 100\ncount = 10\n";

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse("x", "x.toml", text).map_err(|error| error.to_string())
}

#[test]
fn every_shipped_scenario_can_be_read_at_every_scale() {
    for (name, text) in shipped::SHIPPED {
        let scenario = shipped::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.published_on.is_empty(), "{name}");
        assert!(!scenario.question.is_empty(), "{name}");
        assert!(scenario.scales.contains_key("small"), "{name}");
        let small = Changes {
            scale: Some("small".into()),
            ..Changes::default()
        };
        let replicas = |changes: &Changes| {
            let points = scenario.points(changes).unwrap();
            let replicas: std::collections::BTreeSet<u16> =
                points.iter().map(|it| it.spec.topic.replicas).collect();
            replicas
        };
        assert_eq!(
            replicas(&small),
            replicas(&Changes::default()),
            "{name}: small takes less time, and replicates no less"
        );
        assert!(!scenario.differences(&small).is_empty(), "{name}");
    }
}

#[test]
fn every_shipped_file_is_in_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files = 0;
    for group in std::fs::read_dir(folder).unwrap() {
        files += std::fs::read_dir(group.unwrap().path()).unwrap().count();
    }
    assert_eq!(files, shipped::SHIPPED.len());
}

/// Counts the published figures: seven throughput rows, latency, losses, the ladders, the matrix
/// and the searches.
#[test]
fn published_figures_are_in_the_scenarios() {
    let count = |group: &str| -> usize {
        let all = shipped::find(group).into_iter();
        all.map(|(name, text)| {
            let scenario = shipped::parse(name, text).unwrap();
            scenario
                .published
                .iter()
                .map(|it| it.figures.len())
                .sum::<usize>()
        })
        .sum()
    };
    assert_eq!(count("linkedin-2014"), 7 * 2 + 3 + 1);
    assert_eq!(count("compression-matrix"), 7 * 3 * 2);
    assert_eq!(count("rate-ladder"), 10 * 3 + 5 * 2 + 5);
    assert_eq!(count("sla-search"), 4);
}

#[test]
fn the_batch_size_sweeps_have_200_values() {
    let (name, text) = shipped::find("producer-tuning/batch-size")[0];
    let scenario = shipped::parse(name, text).unwrap();
    assert_eq!(scenario.points(&Changes::default()).unwrap().len(), 200);
    assert!(
        scenario
            .plots
            .iter()
            .all(|plot| plot.trend && plot.logarithmic_x)
    );
}

#[test]
fn a_group_is_found_by_its_name() {
    assert_eq!(shipped::find("linkedin-2014").len(), 11);
    assert_eq!(shipped::find("linkedin-2014/*").len(), 11);
    assert_eq!(shipped::find("rate-ladder/write").len(), 1);
    assert_eq!(shipped::find("linkedin").len(), 0);
    assert!(shipped::similar("linkedin").contains(&"linkedin-2014/single-producer"));
}

#[test]
fn changes_apply_and_are_reported() {
    let text = format!(
        "{SMALLEST}[topic]\nreplicas = 3\n[[sweep]]\nkey = 'records.size'\nvalues = [1, 2]\n\
         [[published]]\nat = {{ 'records.size' = 2 }}\nnote = 'two'\n\
         [scale.small]\n'records.count' = 5\n"
    );
    let scenario = parse(&text).unwrap();
    let changes = Changes {
        scale: Some("small".into()),
        settings: vec![
            ("topic.replicas".into(), Value::Integer(1)),
            ("records.size".into(), Value::Integer(2)),
        ],
    };
    let points = scenario.points(&changes).unwrap();
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].spec.records.count, Some(5));
    assert_eq!(points[0].spec.topic.replicas, 1);
    assert_eq!(scenario.published_about(&points[0]).count(), 1);
    assert_eq!(
        scenario.differences(&changes),
        [
            "records.count 5 instead of 10",
            "records.size 2 throughout",
            "topic.replicas 1 instead of 3"
        ]
    );
}

#[test]
fn setting_one_of_coupled_values_keeps_published_figures() {
    let text = format!(
        "{SMALLEST}[[sweep]]\nkeys = ['topic.replicas', 'topic.partitions']\n\
         values = [[1, 1], [2, 5]]\n\
         [[published]]\nat = {{ 'topic.replicas' = 2 }}\nnote = 'two'\n"
    );
    let scenario = parse(&text).unwrap();
    let changes = Changes {
        scale: None,
        settings: vec![("topic.replicas".into(), Value::Integer(1))],
    };
    let points = scenario.points(&changes).unwrap();
    assert_eq!(
        (
            points[1].spec.topic.replicas,
            points[1].spec.topic.partitions
        ),
        (1, 5)
    );
    assert_eq!(points[1].at["topic.replicas"], Value::Integer(1));
    assert_eq!(scenario.published_about(&points[1]).count(), 1);
    assert_eq!(
        scenario.differences(&changes),
        ["topic.replicas 1 throughout"]
    );
}

#[test]
fn errors_name_the_mistake() {
    for (text, expected) in [
        ("title = 1", "x.toml: title = 1: not accepted; give a text"),
        ("titel = 'x'", "x.toml: title: is missing; give a text"),
        ("title = 'x'", "x.toml: records.size: is missing"),
        (
            &format!("{SMALLEST}[load]\nkind = 'opn'"),
            "load.kind = \"opn\": no kind of load",
        ),
        (
            &format!("{SMALLEST}[load]\nkind = 'rate'"),
            "load.rate: is missing",
        ),
        (
            &format!("{SMALLEST}[topic]\npartitions = 0"),
            "topic.partitions = 0: not accepted",
        ),
        (
            &format!("{SMALLEST}[topic]\nparts = 1"),
            "topic.parts = 1: no such key; there are",
        ),
        (
            &format!("{SMALLEST}[measure]\ntime = '3'"),
            "measure.time = \"3\": not accepted",
        ),
        (
            &format!("{SMALLEST}[measure]\nend_to_end = true"),
            "measure.end_to_end = true: needs at least one consumer",
        ),
        (
            &format!("{SMALLEST}[[published]]\nfigures = {{ 'speed' = 1 }}"),
            "published[1].figures.speed = 1: is not a figure of a run",
        ),
        (
            &format!("{SMALLEST}[scale.small]\n'records.size' = 'big'"),
            "records.size = \"big\": not accepted",
        ),
        (
            &format!("{SMALLEST}[[sweep]]\nkey = 'load.kind'\nvalues = ['closed', 'x']"),
            "load.kind = \"x\": no kind of load",
        ),
        (
            &format!("{SMALLEST}[measure]\nleader_dies = '1s'\ntime = '2s'"),
            "measure.leader_dies = \"1s\": needs topic.replicas of 2 or more",
        ),
        (
            &format!("{SMALLEST}[topic]\nreplicas = 2\n[measure]\nleader_dies = '2s'\ntime = '2s'"),
            "measure.leader_dies = \"2s\": has to be before the end of measure.time",
        ),
        (
            &format!("{SMALLEST}[consumers]\ncount = 1\nsubscribe = true"),
            "consumers.subscribe = true: needs shared = true",
        ),
        (
            &format!("{SMALLEST}[measure]\nrebalance = '1s'\ntime = '3s'"),
            "measure.rebalance = \"1s\": needs consumers.subscribe",
        ),
        (
            &format!(
                "{SMALLEST}[consumers]\ncount = 1\nshared = true\nsubscribe = true\n\
                 [measure]\nrebalance = '1s'\ntime = '2s'"
            ),
            "measure.rebalance = \"1s\": has to be less than half of measure.time",
        ),
        (
            &format!("{SMALLEST}[[plot]]\ntitle = 'p'\nx = 'y'"),
            "plot[1].x = \"y\": is not swept",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
    }
}

#[test]
fn a_rate_in_bytes_is_divided_by_the_size() {
    let text = format!("{SMALLEST}[load]\nkind = 'rate'\nrate = '1KB'");
    let points = parse(&text).unwrap().points(&Changes::default()).unwrap();
    let expected = Load::Rate {
        records_per_second: 10.24,
    };
    assert_eq!(points[0].spec.load, expected);
}

#[test]
fn the_required_disk_space_is_known_before_a_run() {
    let text = format!("{SMALLEST}[topic]\nreplicas = 3\n");
    let points = parse(&text).unwrap().points(&Changes::default()).unwrap();
    assert_eq!(points[0].spec.expected_bytes(1e9), 10 * 110 * 3);
}

/// The table of `docs/bench.md` maps published rows and plots to scenarios. It must name every
/// scenario, every published figure and every plot, and no others.
#[test]
fn the_table_of_coverage_is_correct_and_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, table) = page
        .split_once("| published | scenario | figures | plots |")
        .unwrap();
    let mut said: BTreeMap<&str, (Vec<f64>, Vec<&str>)> = BTreeMap::new();
    for line in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, scenario, figures, plots] = cells[..] else {
            panic!("{line}");
        };
        let name = scenario.trim_matches('`');
        if name.starts_with("ottla bench size") {
            continue;
        }
        let of_scenario = said.entry(name).or_default();
        let figures = figures.split(" · ").filter(|it| *it != "–");
        of_scenario
            .0
            .extend(figures.map(|it| it.replace(',', "").parse::<f64>().unwrap()));
        of_scenario
            .1
            .extend(plots.split("; ").filter(|it| *it != "–"));
    }
    let names: Vec<&str> = said.keys().copied().collect();
    let mut shipped: Vec<&str> = shipped::SHIPPED.iter().map(|(name, _)| *name).collect();
    shipped.sort_unstable();
    assert_eq!(names, shipped);
    for (name, text) in shipped::SHIPPED {
        let scenario = shipped::parse(name, text).unwrap();
        let (mut figures, plots) = said[name].clone();
        let published = scenario.published.iter().flat_map(|it| it.figures.values());
        let mut published: Vec<f64> = published.copied().collect();
        figures.sort_by(f64::total_cmp);
        published.sort_by(f64::total_cmp);
        assert_eq!(figures, published, "{name}");
        let titles: Vec<&str> = scenario.plots.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(plots, titles, "{name}");
    }
}
