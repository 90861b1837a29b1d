use std::time::Duration;

use canopus_base::yaml;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn messages(source: &dyn Source) -> Vec<String> {
    Flags::read(source).warnings().iter().map(ToString::to_string).collect()
}

fn row_of(flags: &Flags, name: &str) -> Row {
    flags.list().into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_type_has_its_own_output() {
    let flags = Flags::defaults();
    assert!(flags.get(ISTIO_DELTA_XDS));
    assert_eq!(flags.get(PILOT_XDS_CACHE_SIZE), 60_000);
    assert_eq!(flags.get(SECRET_GRACE_PERIOD_RATIO), 0.5);
    assert_eq!(flags.get(PILOT_DEBOUNCE_MAX), Duration::from_secs(10));
    assert_eq!(flags.get(CLUSTER_ID), "Kubernetes");
    assert_eq!(flags.get(TOKEN_AUDIENCES), ["istio-ca"]);
    assert_eq!(flags.get(ENABLE_NATIVE_SIDECARS), "auto");
    assert_eq!(flags.warnings(), []);
}

#[test]
fn every_key_opens_its_own_row() {
    assert_eq!(PILOT_DEBOUNCE_AFTER.to_string(), "PILOT_DEBOUNCE_AFTER");
    assert_eq!(XDS_ROOT_CA.to_string(), "XDS_ROOT_CA");
    assert_eq!(SERVICE_ACCOUNT.spec().kind, Kind::Text);
}

#[test]
fn settings_win_over_defaults() {
    let flags = Flags::read(&[
        ("PILOT_DEBOUNCE_AFTER", "1m1.5s"),
        ("PILOT_PUSH_THROTTLE", "7"),
        ("TRUSTED_GATEWAY_CIDR", "10.0.0.0/8, 192.168.0.0/16"),
        ("PILOT_JWT_ENABLE_REMOTE_JWKS", "hybrid"),
        ("CLUSTER_ID", ""),
    ]);
    assert_eq!(flags.get(PILOT_DEBOUNCE_AFTER), Duration::from_millis(61_500));
    assert_eq!(flags.push_throttle(), 7);
    assert_eq!(flags.get(TRUSTED_GATEWAY_CIDR), ["10.0.0.0/8", "192.168.0.0/16"]);
    assert_eq!(flags.get(PILOT_JWT_ENABLE_REMOTE_JWKS), "hybrid");
    assert_eq!(flags.get(CLUSTER_ID), "");
    assert!(flags.is_set(CLUSTER_ID));
    assert!(!flags.is_set(POD_NAME));
    assert_eq!(flags.warnings(), []);
}

#[test]
fn negative_duration_reads_as_zero() {
    let flags = Flags::read(&[("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "-1h")]);
    assert_eq!(flags.get(CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL), Duration::ZERO);
}

#[test]
fn invalid_text_is_reported_and_replaced() {
    assert_eq!(
        messages(&[("PILOT_DEBOUNCE_AFTER", "100"), ("XDS_AUTH", "on"), ("PILOT_TRACE_SAMPLING", "101")]),
        [
            "PILOT_DEBOUNCE_AFTER: \"100\" is not valid, expected a duration such as 100ms or 1h30m; using 100ms",
            "XDS_AUTH: \"on\" is not valid, expected true or false; using true",
            "PILOT_TRACE_SAMPLING: \"101\" is not valid, expected a value from 0 to 100; using 1",
        ]
    );
    let short = [("PILOT_ANALYSIS_INTERVAL", "10ms")];
    assert_eq!(
        messages(&short),
        ["PILOT_ANALYSIS_INTERVAL: \"10ms\" is not valid, expected a value of at least 1s; using 10s"]
    );
    assert_eq!(Flags::read(&short).get(PILOT_ANALYSIS_INTERVAL), Duration::from_secs(10));
}

#[test]
fn unknown_word_for_native_sidecars_turns_them_off() {
    let flags = Flags::read(&[("ENABLE_NATIVE_SIDECARS", "maybe")]);
    assert_eq!(flags.get(ENABLE_NATIVE_SIDECARS), "false");
    assert_eq!(
        flags.warnings()[0].to_string(),
        "ENABLE_NATIVE_SIDECARS: \"maybe\" is not valid, expected one of auto, true, false; using false"
    );
}

#[test]
fn dependent_flags_are_off_without_ambient() {
    let flags = Flags::read(&[("PILOT_ENABLE_SENDING_HBONE", "true")]);
    assert!(!flags.get(PILOT_ENABLE_SENDING_HBONE));
    assert_eq!(
        flags.warnings()[0].to_string(),
        "PILOT_ENABLE_SENDING_HBONE: ignored, because PILOT_ENABLE_AMBIENT is not on"
    );
}

#[test]
fn dependent_flags_take_their_other_default_with_ambient() {
    let flags = Flags::read(&[("PILOT_ENABLE_AMBIENT", "true"), ("AMBIENT_ENABLE_STATUS", "false")]);
    assert!(flags.get(PILOT_ENABLE_SENDING_HBONE));
    assert!(flags.get(PILOT_ENABLE_AMBIENT_WAYPOINTS));
    assert!(!flags.get(PILOT_PREFER_SENDING_HBONE));
    assert!(!flags.get(AMBIENT_ENABLE_STATUS));
    assert!(!row_of(&flags, "PILOT_ENABLE_SENDING_HBONE").changed);
    assert!(row_of(&flags, "AMBIENT_ENABLE_STATUS").changed);
}

#[test]
fn dependence_reaches_through_several_flags() {
    let both = [("ENABLE_MCS_CLUSTER_LOCAL", "true"), ("ENABLE_MCS_HOST", "true")];
    assert!(!Flags::read(&both).get(ENABLE_MCS_CLUSTER_LOCAL));
    let all = [both[0], both[1], ("ENABLE_MCS_SERVICE_DISCOVERY", "true")];
    assert!(Flags::read(&all).get(ENABLE_MCS_CLUSTER_LOCAL));
}

#[test]
fn limits_fit_the_machine_unless_set() {
    let flags = Flags::defaults();
    assert!((20..=100).contains(&flags.push_throttle()));
    assert_eq!(flags.request_limit(), flags.push_throttle() as f64);
    assert_eq!(Flags::read(&[("PILOT_MAX_REQUESTS_PER_SECOND", "2.5")]).request_limit(), 2.5);
    assert_eq!(Flags::read(&[("PILOT_PUSH_THROTTLE", "-1")]).push_throttle(), flags.push_throttle());
}

#[test]
fn gives_variables_that_are_not_flags() {
    let flags = Flags::read(&[
        ("HOME", "/home/a"),
        ("ISTIO_META_NETWORK", "n1"),
        ("ISTIO_META_OWNER", "o"),
        ("ISTIO_MUL", "x"),
    ]);
    assert_eq!(flags.variable("HOME"), Some("/home/a"));
    let metadata: Vec<_> = flags.prefixed("ISTIO_META_").collect();
    assert_eq!(metadata, [("NETWORK", "n1"), ("OWNER", "o")]);
}

#[test]
fn hides_what_may_hold_secrets() {
    let flags = Flags::read(&[("PROXY_CONFIG", "{\"tracing\": \"token\"}")]);
    let row = row_of(&flags, "PROXY_CONFIG");
    assert_eq!((row.value.as_str(), row.changed), ("(hidden)", true));
    assert!(flags.get(PROXY_CONFIG).contains("token"));
    for format in [Format::Table, Format::Json, Format::Yaml] {
        assert!(!render(&flags.list(), format).contains("token\""));
    }
}

#[test]
fn lists_all_flags_by_name() {
    let rows = Flags::defaults().list();
    assert_eq!(rows.len(), Area::ALL.into_iter().map(|area| area.specs().len()).sum::<usize>());
    assert!(rows.windows(2).all(|pair| pair[0].name < pair[1].name));
    assert!(rows.iter().all(|row| !row.changed && row.value == row.default));
}

#[test]
fn renders_for_people_and_machines() {
    let flags = Flags::read(&[("PILOT_DEBOUNCE_AFTER", "1s")]);
    let rows = [row_of(&flags, "PILOT_DEBOUNCE_AFTER")];
    let description = PILOT_DEBOUNCE_AFTER.spec().description;
    assert_eq!(
        render(&rows, Format::Table),
        format!(
            "NAME                   TYPE       DEFAULT   VALUE   CHANGED   DESCRIPTION\n\
             PILOT_DEBOUNCE_AFTER   duration   100ms     1s      yes       {description}\n"
        )
    );
    let expected = json!([{
        "name": "PILOT_DEBOUNCE_AFTER",
        "type": "duration",
        "area": "tuning",
        "default": "100ms",
        "value": "1s",
        "changed": true,
        "read": true,
        "description": description,
    }]);
    let parsed: serde_json::Value = serde_json::from_str(&render(&rows, Format::Json)).unwrap();
    assert_eq!(parsed, expected);
    let printed = yaml::parse_one(render(&rows, Format::Yaml), &yaml::Limits::default()).unwrap();
    assert_eq!(printed.to_json(), expected);
}

#[test]
fn flag_that_nothing_reads_is_listed_as_such() {
    let listed: Vec<_> = Flags::defaults().list().into_iter().filter(|row| !row.read).collect();
    assert!(listed.iter().map(|row| row.name).eq(unread::UNREAD.iter().copied()), "unknown or out of order");
    if let Some(row) = listed.first() {
        let text = render(std::slice::from_ref(row), Format::Table);
        assert!(text.contains(&format!("(without effect yet) {}", row.description)), "{text}");
    }
}

#[test]
fn table_is_consistent() {
    for spec in Area::ALL.into_iter().flat_map(Area::specs) {
        let name = spec.name;
        let default =
            spec.parse(spec.default).unwrap_or_else(|expected| panic!("{name}: default is not {expected}"));
        spec.stand_in(&default);
        if let Some(gate) = spec.gate {
            spec.declared(gate.default);
        }
        let sentence = spec.description;
        assert!(
            sentence.ends_with('.') && !sentence.contains(". "),
            "{name}: one sentence, not {sentence:?}"
        );
        assert_eq!(spec.parse(&default.to_string()), Ok(default), "{name}: prints what it reads");
    }
}

proptest! {
    #[test]
    fn no_text_is_fatal(value in any::<String>()) {
        let everything: BTreeMap<String, String> =
            Area::ALL.into_iter().flat_map(Area::specs).map(|spec| (spec.name.to_owned(), value.clone())).collect();
        let flags = Flags::read(&everything);
        prop_assert_eq!(flags.list().len(), everything.len());
    }
}
