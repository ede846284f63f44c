//! Figures of README and the book are those of the published pages: the tables that quote them are made from the pages.
//! `UPDATE_GOLDEN=1 cargo test -p joulecast-documents --test figures` makes them again.

use joulecast_documents::made::{self, markdown, table};
use joulecast_documents::{root, text};

fn page(name: &str) -> String {
    text(&root(), &format!("reports/published/{name}.md"))
}

/// A section of a page, from its heading to the next one of its rank.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let from = page.find(&format!("\n{heading}")).unwrap_or_else(|| panic!("no {heading}")) + 1;
    let rank = heading.split(' ').next().unwrap_or_default();
    let rest = &page[from..];
    &rest[..rest[1..].find(&format!("\n{rank} ")).map_or(rest.len(), |end| end + 1)]
}

/// The cell of a column, in the first row whose beginning is `keys`.
fn cell<'a>(table: &'a [Vec<String>], keys: &[&str], column: &str) -> &'a str {
    let at = table.first().and_then(|head| head.iter().position(|name| name == column));
    let row = table.iter().find(|row| row.iter().zip(keys).filter(|(cell, key)| cell == key).count() == keys.len());
    at.zip(row).and_then(|(at, row)| row.get(at)).unwrap_or_else(|| panic!("no {column} of {keys:?}")).as_str()
}

/// Rounds of networks, oldest first; those of language models have other groups.
fn rounds() -> Vec<u32> {
    rounds_of("graph")
}

/// Rounds that have a group.
fn rounds_of(group: &str) -> Vec<u32> {
    let page = page("sealed");
    let all = (1..).take_while(|n| page.contains(&format!("\n## Round {n}\n")));
    all.filter(|n| section(&page, &format!("## Round {n}\n")).contains(&format!("\n| {group} | all |"))).collect()
}

/// Whether a board was measured in a round.
fn measured(round: u32, board: &str) -> bool {
    section(&page("sealed"), &format!("## Round {round}\n")).contains(&format!("\n### {board}: time\n"))
}

/// The last round of networks in which a board was measured.
fn last_of(board: &str) -> u32 {
    last_with("graph", board)
}

/// The last round that has a group in which a board was measured.
fn last_with(group: &str, board: &str) -> u32 {
    rounds_of(group).into_iter().filter(|round| measured(*round, board)).max().unwrap_or_default()
}

/// A group that rounds of language models have.
const WORDS: &str = "language model, step";

/// Mean errors of time, power and energy of a group of a sealed round on a board.
fn sealed_errors(round: u32, board: &str, group: &str) -> [String; 3] {
    let page = page("sealed");
    let of = section(&page, &format!("## Round {round}\n"));
    ["time", "power", "energy"].map(|what| {
        let table = table(of, &format!("### {board}: {what}"));
        cell(&table, &[group, "all"], "mean %").to_string()
    })
}

fn sealed_time(round: u32, board: &str, group: &str, column: &str) -> String {
    let page = page("sealed");
    let of = section(&page, &format!("## Round {round}\n"));
    cell(&table(of, &format!("### {board}: time")), &[group, "all"], column).to_string()
}

const BOARDS: [(&str, &str); 2] = [("h100-sxm", "H100"), ("h200", "H200")];

const GROUPS: [(&str, &str); 5] = [
    ("graph", "CUDA graph, inference"),
    ("eager, GPU-bound", "eager, GPU-bound, inference"),
    ("training, GPU-bound", "training, GPU-bound"),
    ("eager, host-bound", "eager, the host decides, inference"),
    ("training, host-bound", "training, the host decides"),
];

/// Every group of the last round of networks in which a board was measured.
fn last_round() -> String {
    let mut rows = Vec::new();
    for (group, shown) in GROUPS {
        for (board, name) in BOARDS {
            let last = last_of(board);
            let of = |column: &str| sealed_time(last, board, group, column);
            let [time, power, energy] = sealed_errors(last, board, group);
            let name = format!("{name}, round {last}");
            let what = [shown.to_string(), name, of("rows"), time, of("median %"), power, energy];
            rows.push([what.to_vec(), vec![of("held %"), of("half-width %")]].concat());
        }
    }
    let head = ["steps", "board", "rows", "time %", "median", "power %", "energy %", "times held %", "half-width %"];
    markdown(&head, |i| i > 1, &rows)
}

/// Mean and median error of times in every round, the newest first.
fn sealed_rounds() -> String {
    let mut rows = Vec::new();
    for round in rounds().into_iter().rev() {
        for (board, name) in BOARDS.into_iter().filter(|(board, _)| measured(round, board)) {
            let of = |group: &str, column: &str| sealed_time(round, board, group, column);
            let cells = GROUPS.iter().map(|(group, _)| format!("{} ({})", of(group, "mean %"), of(group, "median %")));
            rows.push([format!("{round}, {name}")].into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    let head: Vec<&str> = ["round, board"].into_iter().chain(GROUPS.map(|(_, shown)| shown)).collect();
    markdown(&head, |i| i > 0, &rows)
}

/// Language models in all of their rounds, the newest first.
fn sealed_language() -> String {
    let mut rows = Vec::new();
    for round in rounds_of(WORDS).into_iter().rev() {
        for (board, name) in BOARDS.into_iter().filter(|(board, _)| measured(round, board)) {
            for (group, shown) in [("language model, prompt", "prompts"), (WORDS, "steps of one token")] {
                let of = |column: &str| sealed_time(round, board, group, column);
                let mut row = vec![format!("{name}, round {round}"), shown.to_string(), of("rows")];
                row.extend(sealed_errors(round, board, group));
                row.extend([of("held"), of("half-width %")]);
                rows.push(row);
            }
        }
    }
    let head = ["board", "what", "rows", "time %", "power %", "energy %", "times in their interval", "half-width %"];
    markdown(&head, |i| i > 1, &rows)
}

/// Rows of the first table of `layers`: every board with measured layers.
fn boards() -> Vec<Vec<String>> {
    table(&page("layers"), "## All kinds together, board by board")
}

fn boards_table() -> String {
    let rows: Vec<_> = boards().into_iter().skip(1).map(|row| [&row[1..4], &row[5..8]].concat()).collect();
    let head = ["board", "rows are", "rows", "mean error %", "median %", "in their interval %"];
    markdown(&head, |i| i > 1, &rows)
}

fn never_measured(kind: &str) -> Vec<String> {
    let table = table(&page("transfer"), "## Means over chips");
    let of = |column: &str| cell(&table, &[kind, "forward", "fp32"], column).to_string();
    [of("chips"), of("roofline"), of("no own row"), of("20 rows"), of("100 rows")].to_vec()
}

fn never_measured_table() -> String {
    let kinds = [
        ("conv2d", "convolutions"),
        ("linear", "linear layers"),
        ("matmul", "matrix products"),
        ("memory-bound", "memory-bound kinds"),
    ];
    let rows: Vec<Vec<String>> =
        kinds.iter().map(|(kind, shown)| [vec![(*shown).to_string()], never_measured(kind)].concat()).collect();
    let head =
        ["forward, fp32", "chips left out in turn", "plain roofline", "no own row", "20 own rows", "100 own rows"];
    markdown(&head, |i| i > 0, &rows)
}

/// Boards of other people's rows; those of the first generations apart.
const OLD: [&str; 5] = ["gtx1080ti", "m40", "titan-x-maxwell", "titan-x-pascal", "titan-xp"];

/// The smallest and largest value of a column of `layers` over boards that somebody else measured.
fn span(old: bool, column: usize) -> (f64, f64) {
    let rows = boards()
        .into_iter()
        .skip(1)
        .filter(|row| row[2] == "imported" && !["h100-sxm", "h200"].contains(&row[1].as_str()));
    let values = rows.filter(|row| OLD.contains(&row[1].as_str()) == old);
    let values = values.map(|row| row[column].parse::<f64>().unwrap_or_else(|e| panic!("{row:?}: {e}")));
    values.fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
}

/// README's five rows.
fn for_your_gpu() -> String {
    let last = BOARDS.map(|(board, _)| last_of(board));
    let row = |cells: [&str; 7]| cells.map(str::to_string).to_vec();
    let sealed = |of: [u32; 2], group: &str, what: &str| {
        let at = [0, 1].map(|i| (of[i], BOARDS[i].0));
        let both = at.map(|(round, board)| sealed_errors(round, board, group));
        let held = at.map(|(round, board)| sealed_time(round, board, group, "held %")).join(", ");
        let mut rounds = of.map(|round| format!("data/sealed/round-{round}")).to_vec();
        rounds.dedup();
        let of = |i: usize| format!("{}, {}", both[0][i], both[1][i]);
        row([
            "H100, H200",
            what,
            &of(0),
            &of(1),
            &of(2),
            &held,
            &format!("`calibrate sealed {}`", rounds.join("`, `calibrate sealed ")),
        ])
    };
    let layers = |names: &str, old: bool, power: &str, by: &str| {
        let ((low, high), (least, most)) = (span(old, 5), span(old, 7));
        let (time, held) = (format!("{low:.1} to {high:.1}"), format!("{least:.0} to {most:.0}"));
        row([names, "layers", &time, power, "", &held, by])
    };
    let transfer = table(&page("transfer"), "## Means over chips");
    let of = |column: &str, digits: usize| {
        let of = |kind: &str| -> f64 {
            cell(&transfer, &[kind, "forward", "fp32"], column).parse().unwrap_or_else(|e| panic!("{kind}: {e}"))
        };
        format!("{:.digits$}, {:.digits$}", of("conv2d"), of("linear"))
    };
    let papers = table(&page("papers"), "## Mean errors");
    let power = cell(&papers, &["castro2018", "table1", "forward", "1", "power"], "mean %");
    let (time, held) = (of("no own row", 1), of("held %", 0));
    let rows = [
        sealed(last, "graph", "new networks, CUDA graphs"),
        sealed(BOARDS.map(|(board, _)| last_with(WORDS, board)), WORDS, "language models, a token"),
        layers("A100, B200, L40S, P4, P100, T4, V100", false, "lent", "`calibrate/tools/publish.sh layers`"),
        layers("GTX 1080 Ti, M40, Titan X, Titan Xp", true, power, "`calibrate/tools/publish.sh layers papers`"),
        row([
            "nobody measured it",
            "convolutions, linear layers",
            &time,
            "lent",
            "",
            &held,
            "`calibrate/tools/publish.sh transfer`",
        ]),
    ];
    let host = |board| sealed_time(last_of(board), board, "eager, host-bound", "mean %");
    let head = ["your GPU", "judged on", "time", "power", "energy", "90 % intervals hold times", "made by"];
    markdown(&head, |i| (2..6).contains(&i), &rows)
        + &format!(
            "\nEager steps that wait for the host are {} and {} % off: hosts differ, and `calibrate host` measures yours.\n",
            host("h100-sxm"),
            host("h200")
        )
}

/// Groups of runs of whole networks, as `accuracy` has them.
fn whole_networks(groups: &[(&str, &str, [&str; 4])]) -> String {
    let page = page("accuracy");
    let row = |(shown, heading, keys): &(&str, &str, [&str; 4])| {
        let table = table(section(&page, heading), "");
        let [networks, mode, launch, precision] = *keys;
        let keys = ["h200", networks, mode, launch, precision];
        let found = table.iter().find(|row| row.iter().zip(&keys).all(|(cell, key)| cell == key));
        let found = found.unwrap_or_else(|| panic!("no {keys:?} in {heading}"));
        let held = |at: usize| found[at].split('/').next().unwrap_or_default();
        // gpu, networks, mode, launch, precision, runs, then value, bias, (worst,) holds of each.
        vec![
            (*shown).to_string(),
            found[5].clone(),
            found[6].clone(),
            found[10].clone(),
            found[13].clone(),
            format!("{}, {}, {}", held(9), held(12), held(16)),
        ]
    };
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    let head = ["runs", "how many", "time %", "power %", "energy %", "in their interval: time, power, energy"];
    markdown(&head, |i| i > 0, &rows)
}

fn networks() -> String {
    let pytorch = "## PyTorch, eager and as a CUDA graph";
    let own = "## Kernels back to back";
    let graphs = "## Training steps of the GPU alone";
    let others = "## Networks that are not in the zoo";
    whole_networks(&[
        ("kernels back to back, inference", own, ["development", "inference", "graph", "all"]),
        ("the same, training step", own, ["development", "training", "graph", "all"]),
        ("PyTorch, CUDA graph, inference", pytorch, ["development", "inference", "graph", "all"]),
        ("PyTorch, eager, GPU-bound, inference", pytorch, ["development", "inference", "eager", "all"]),
        (
            "PyTorch, eager, launch-bound, inference",
            pytorch,
            ["development", "inference", "eager, launch-bound", "all"],
        ),
        (
            "PyTorch, eager, launch-bound, training step",
            pytorch,
            ["development", "training", "eager, launch-bound", "all"],
        ),
        ("PyTorch, eager, GPU-bound, training step", pytorch, ["development", "training", "eager", "all"]),
        ("PyTorch, CUDA graph, training step", graphs, ["development", "training", "graph", "all"]),
        ("16 networks from their ONNX exports, CUDA graph", others, ["development", "inference", "graph", "all"]),
        (
            "of other networks: PyTorch, eager, launch-bound, inference",
            pytorch,
            ["conformal", "inference", "eager, launch-bound", "all"],
        ),
    ])
}

fn transformers() -> String {
    let page = "## Transformers through PyTorch";
    whole_networks(&[
        ("CUDA graph, inference", page, ["development", "inference", "graph", "all"]),
        ("eager, GPU-bound, inference", page, ["development", "inference", "eager", "all"]),
        ("eager, launch-bound, inference", page, ["development", "inference", "eager, launch-bound", "all"]),
        ("eager, GPU-bound, training step", page, ["development", "training", "eager", "all"]),
        ("eager, launch-bound, training step", page, ["development", "training", "eager, launch-bound", "all"]),
    ])
}

/// Layers against NeuralPower's polynomial and the roofline, forward, fp32.
fn comparators() -> String {
    const SHOWN: [(&str, &str, &str, &str); 16] = [
        ("H200", "GH100", "conv2d", "on h200"),
        ("H200", "GH100", "linear", "on h200"),
        ("H200", "GH100", "batch_norm", "on h200"),
        ("H200", "GH100", "relu", "on h200"),
        ("H100", "GH100", "conv2d", "on h100-sxm"),
        ("V100", "GV100", "conv2d", "all rows"),
        ("V100", "GV100", "linear", "all rows"),
        ("V100", "GV100", "matmul", "all rows"),
        ("T4", "TU104", "conv2d", "all rows"),
        ("P100", "GP100", "conv2d", "all rows"),
        ("A100, 3x3 only", "GA100", "conv2d", "all rows"),
        ("A100", "GA100", "linear", "all rows"),
        ("P4, 3x3 only", "GP104", "conv2d", "all rows"),
        ("M40, Titan X (Maxwell)", "GM200", "conv2d", "all rows"),
        ("Titan X (Pascal), Titan Xp, 1080 Ti", "GP102", "conv2d", "all rows"),
        ("Titan X (Pascal), Titan Xp, 1080 Ti", "GP102", "linear", "all rows"),
    ];
    let all = table(&page("layers"), "## Kind by kind");
    let row = |(gpu, chip, kind, rows): &(&str, &str, &str, &str)| {
        let keys = [*chip, *kind, "forward", "fp32", *rows];
        let of = |column: &str| cell(&all, &keys, column).to_string();
        [
            gpu.to_string(),
            kind.to_string(),
            of("rows"),
            of("MAPE %"),
            of("NeuralPower MAPE"),
            of("as in its paper"),
            of("roofline MAPE"),
        ]
        .to_vec()
    };
    let rows: Vec<Vec<String>> = SHOWN.iter().map(row).collect();
    let head =
        ["GPU", "layers", "rows", "mean error %", "NeuralPower's polynomial", "as in its paper", "plain roofline"];
    markdown(&head, |i| i > 1, &rows)
}

fn papers() -> String {
    let mut rows = table(&page("papers"), "## Mean errors");
    let head = rows.remove(0);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    markdown(&head, |i| i > 4, &rows)
}

/// Curves over power limits of somebody else's boards.
fn limits() -> String {
    let table = table(&page("power"), "## Time and energy under power limits: krzywaniak2022, Tables 2 and 3");
    let of = |gpu: &str, column: &str| cell(&table, &[gpu, "mean over points"], column).to_string();
    let columns = ["default given: time %", "energy %", "unseen: time %", "mean curve: time %"];
    let rows: Vec<Vec<String>> = ["v100", "quadro-rtx6000"]
        .iter()
        .map(|gpu| std::iter::once((*gpu).to_string()).chain(columns.iter().map(|column| of(gpu, column))).collect())
        .collect();
    let head = [
        "board",
        "default given: time %",
        "energy %",
        "nothing given: time %",
        "mean of other networks' curves: time %",
    ];
    markdown(&head, |i| i > 0, &rows)
}

#[test]
fn quoted_figures_are_those_of_the_published_pages() {
    let mut kinds = 0;
    made::check(&root(), |what| {
        let made = match what {
            "for your GPU" => for_your_gpu(),
            "last sealed round" => last_round(),
            "sealed rounds" => sealed_rounds(),
            "sealed language models" => sealed_language(),
            "boards" => boards_table(),
            "comparators" => comparators(),
            "networks" => networks(),
            "transformers" => transformers(),
            "papers" => papers(),
            "never measured" => never_measured_table(),
            "limits" => limits(),
            // `predict/tests/readme.rs` makes these.
            _ if what.starts_with("predict ") => return None,
            _ => panic!("nothing makes {what:?}"),
        };
        kinds += 1;
        Some(made)
    });
    assert!(kinds >= 10, "{kinds} tables are made from published pages");
}
