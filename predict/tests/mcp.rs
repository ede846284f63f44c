//! `predict mcp`, driven over a pipe as an assistant drives it.

mod program;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// The server, and the lines that it writes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Server {
    fn start() -> Self {
        let mut command = program::predict();
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("predict starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output, last: 0 }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the server reads");
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).expect("a line of JSON")
    }

    /// A request's answer.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }).to_string());
        let answer = self.answer();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(self.last)), "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Ends the input: the server ends well, having said nothing beside.
    fn end(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        let status = child.wait().expect("it ends");
        let mut said = String::new();
        let _ = std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said);
        assert!(status.success() && said.is_empty(), "{status}: {said}");
    }
}

/// What the command prints.
fn printed(arguments: &[&str]) -> Value {
    let output = program::predict().args(arguments).args(["--format", "json"]).output().expect("predict starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn tools_answer_with_the_documents_of_the_commands() {
    let mut server = Server::start();
    let hello = server.ask("initialize", json!({ "protocolVersion": "2025-03-26", "capabilities": {} }));
    assert_eq!(hello["result"]["protocolVersion"], "2025-03-26");
    assert!(
        hello["result"]["capabilities"]["tools"].is_object() && hello["result"]["serverInfo"]["name"] == "joulecast"
    );
    let unknown = server.ask("initialize", json!({ "protocolVersion": "1999-01-01" }));
    assert_eq!(unknown["result"]["protocolVersion"], "2025-06-18");
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));

    let listed = server.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list");
    assert_eq!(
        tools.iter().filter_map(|t| t["name"].as_str()).collect::<Vec<_>>(),
        ["predict", "compare", "optimize", "plan"]
    );
    for tool in tools {
        let schema = &tool["inputSchema"];
        let properties = schema["properties"].as_object().expect("properties");
        assert!(schema["type"] == "object" && properties.len() > 5, "{tool}");
        assert!(properties.values().all(|p| p["description"].as_str().is_some_and(|d| !d.is_empty())), "{tool}");
        assert!(
            !["output", "force", "format", "figure", "figures"].iter().any(|key| properties.contains_key(*key)),
            "{tool}"
        );
        let required = schema["required"].as_array().expect("a list");
        assert!(required.iter().all(|key| properties.contains_key(key.as_str().unwrap_or_default())), "{tool}");
    }

    let step =
        json!({ "net": "alexnet", "gpu": "NVIDIA A100-SXM4-40GB", "batch": 8, "power_cap": "0.25kW", "layers": true });
    let answer = server.call("predict", step);
    let own = ["--net", "alexnet", "--gpu", "NVIDIA A100-SXM4-40GB", "--batch", "8", "--power-cap", "250"];
    let expected = printed(&own);
    assert_eq!(answer["result"]["structuredContent"], expected);
    assert_eq!(answer["result"]["content"][0]["text"], expected["verdict"]["text"]);
    let short = server.call("predict", json!({ "net": "alexnet", "gpu": "t4", "batch": "8" }));
    let document = &short["result"]["structuredContent"];
    assert!(
        document["layers"].as_array().is_some_and(Vec::is_empty)
            && document["time_s"].as_f64().is_some_and(|t| t > 0.0)
    );
    let text = short["result"]["content"][1]["text"].as_str().unwrap_or_default();
    assert_eq!(serde_json::from_str::<Value>(text).ok().as_ref(), Some(document));

    let answer = server.call("compare", json!({ "net": ["alexnet"], "gpu": ["t4", "v100"], "batch": [1, 8] }));
    let expected = printed(&["compare", "--net", "alexnet", "--gpu", "t4,v100", "--batch", "1,8"]);
    assert_eq!(answer["result"]["structuredContent"], expected);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("least time of alexnet at batch 1: ") && text.contains("Trust: "), "{text}");

    let answer = server.call("optimize", json!({ "net": "alexnet", "gpu": "v100", "batch": 8, "over": ["cap"] }));
    let expected = printed(&["optimize", "--net", "alexnet", "--gpu", "v100", "--batch", "8", "--over", "cap"]);
    assert_eq!(answer["result"]["structuredContent"], expected);

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/capacity/tagging.toml");
    let text = std::fs::read_to_string(path).expect("a plan");
    let (by_path, by_text) =
        (server.call("plan", json!({ "file": path })), server.call("plan", json!({ "plan": text })));
    assert_eq!(by_path["result"], by_text["result"]);
    let (answer, mut expected) = (&by_text["result"]["structuredContent"], printed(&["plan", path]));
    expected["command"] = answer["command"].clone();
    assert_eq!(*answer, expected);
    assert_eq!(
        by_text["result"]["content"][0]["text"],
        format!("{}.", expected["verdict"].as_str().unwrap_or_default())
    );
    server.end();
}

#[test]
fn what_is_wrong_is_an_error_and_the_server_goes_on() {
    let mut server = Server::start();
    for (line, code) in [
        ("{", -32700),
        ("\u{0}\u{1}", -32700),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600),
        ("{\"id\":1}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/list\"}", -32601),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"sweep\"}}", -32602),
    ] {
        server.send(line);
        let answer = server.answer();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    for arguments in [
        json!({ "network": "alexnet" }),
        json!({ "net": { "a": 1 }, "gpu": "t4", "batch": 1 }),
        json!({ "net": "alexnet", "gpu": "t4", "batch": 1, "output": "/tmp/x" }),
        json!({ "net": "alexnet", "gpu": "t4", "batch": 1, "layers": "yes" }),
        json!([]),
    ] {
        let answer = server.call("predict", arguments.clone());
        assert_eq!(answer["error"]["code"], -32602, "{arguments}: {answer}");
    }
    // What the command refuses is told to the one who asked.
    for (arguments, why) in [
        (json!({ "net": "alexnet", "gpu": "t5", "batch": 1 }), "nearest"),
        (json!({ "net": "alexnet", "gpu": "t4", "batch": -1 }), "batch"),
        (json!({ "net": "alexnet", "gpu": "t4", "batch": 1e300 }), "batch"),
        (json!({ "net": "model.pt", "gpu": "t4", "batch": 1 }), "torch.onnx.export"),
        (json!({ "net": "--help", "gpu": "t4", "batch": 1 }), "--help"),
        (json!({ "net": "alexnet", "batch": 1 }), "--gpu"),
        (json!({}), "--net"),
    ] {
        let answer = server.call("predict", arguments.clone());
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(
            answer["result"]["isError"] == true && text.contains(why) && !text.contains('\n'),
            "{arguments}: {answer}"
        );
    }
    let answer = server.call("plan", json!({ "plan": "schema = 1" }));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
    server.end();
}
