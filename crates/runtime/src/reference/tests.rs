use clap::Arg;

use super::*;

fn program() -> Command {
    let kubeconfig = Arg::new("kubeconfig")
        .short('c')
        .long("kubeconfig")
        .global(true)
        .value_name("FILE")
        .help("Where a|b is");
    let output = Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(["text", "json"])
        .default_value("text")
        .help("Output format");
    let check = Command::new("check")
        .about("Check it.")
        .long_about("Check it.\n\nWrite files as\n\n  tests:\n  - <name>\n\nand no other.")
        .visible_alias("c")
        .arg(
            Arg::new("files")
                .value_name("FILES")
                .action(ArgAction::Append)
                .required(true)
                .help("What to read"),
        )
        .arg(output)
        .arg(Arg::new("old").long("old").hide(true))
        .after_help(
            "Examples:\n  prog check a\n  prog check '.b'\n\nExit codes: 0 all is well, 1 nothing\nis.",
        )
        .subcommand(Command::new("deep").about("Check *everything*"));
    Command::new("prog")
        .about("A program.")
        .arg(kubeconfig)
        .subcommand(check)
        .subcommand(Command::new("ghost").hide(true))
}

#[test]
fn a_page_has_what_the_parser_knows() {
    let page = Page::from_command(&program());
    assert_eq!(
        page.inherited,
        [Entry { name: "-c, --kubeconfig FILE".into(), help: "Where a|b is.".into() }]
    );
    let [check] = page.commands.as_slice() else { panic!("{:?}", page.commands) };
    assert_eq!(check.usage, "prog check [OPTIONS] <FILES>... [COMMAND]");
    assert_eq!(check.arguments, [Entry { name: "FILES…".into(), help: "What to read.".into() }]);
    let help = "Output format. One of text, json. Default: text.";
    assert_eq!(check.flags, [Entry { name: "-o, --output FORMAT".into(), help: help.into() }]);
    let titles: Vec<_> = check.sections.iter().map(|section| (&*section.title, section.verbatim)).collect();
    assert_eq!(titles, [("Examples", true), ("Exit codes", false)]);
    assert_eq!(check.sections[1].text, "0 all is well, 1 nothing is.");
    assert_eq!(check.commands[0].command, "prog check deep");
    assert!(check.commands[0].flags.is_empty(), "flags of every command are said once");
}

#[test]
fn markdown_lists_commands_and_escapes_what_would_not_show() {
    let files = Page::from_command(&program()).markdown();
    let [index, check] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((&*index.name, &*check.name), ("README.md", "check.md"));
    assert!(index.text.contains("| [`check`](check.md) | Check it. |"), "{}", index.text);
    assert!(index.text.contains("| `-c, --kubeconfig FILE` | Where a\\|b is. |"), "{}", index.text);
    assert!(check.text.contains("\n```\ntests:\n- <name>\n```\n"), "{}", check.text);
    assert!(check.text.contains("\n## prog check deep\n\nCheck \\*everything\\*\n"), "{}", check.text);
    assert_eq!(check.text.matches("Check it.").count(), 1, "{}", check.text);
}

#[test]
fn manual_pages_are_ones_that_groff_understands() {
    let files = Page::from_command(&program()).man();
    let names: Vec<_> = files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["prog.1", "prog-check.1"]);
    let text = &files[1].text;
    assert!(text.contains(".SH \"EXIT STATUS\"\n.PP\n0 all is well, 1 nothing is.\n"), "{text}");
    assert!(text.contains(".TP\n.B \\-o, \\-\\-output FORMAT\n"), "{text}");
    let is_request = |line: &&str| line.starts_with('.') && !line.starts_with(".b'");
    let known = [".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR", ".nf", ".fi", ".RS", ".RE"];
    for request in text.lines().filter(is_request) {
        assert!(known.contains(&request.split(' ').next().unwrap()), "{request}");
    }
}

#[test]
fn collateral_writes_what_is_asked_for() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        collateral: CollateralFlags,
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep").display().to_string();
    let line = <Line as clap::Parser>::parse_from(["x", "--all", "--outputDir", &path]);
    line.collateral.write(&program()).unwrap();
    let mut names: Vec<String> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected =
        ["README.md", "_prog", "check.md", "prog-check.1", "prog.1", "prog.bash", "prog.html", "prog.yaml"];
    assert_eq!(names, expected);
    let html = fs::read_to_string(format!("{path}/prog.html")).unwrap();
    assert!(
        html.contains("<pre class=\"language-bash\"><code>tests:\n- &lt;name&gt;</code></pre>"),
        "{html}"
    );
}
