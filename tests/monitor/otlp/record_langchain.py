"""Records what the two instrumentations of LangChain export of one and the same run.

Not a test: it was run once in an environment of its own, so that the tests need none of these packages.

    pip install langchain langchain-openai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    pip install openinference-instrumentation-langchain opentelemetry-instrumentation-langchain
    python record_langchain.py

A supervisor calls an agent as a tool, that agent calls a retriever as a tool, and a chain without any agent
answers from documents. The models are OpenAI's client before a server on loopback, which is asked for
``gpt-4o`` and says that ``gpt-4o-2024-08-06`` answered. Each instrumentation runs in a process of its own.
"""

import importlib
import importlib.metadata
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("recorded")
INSTRUMENTORS = {
    "openinference": ("openinference.instrumentation.langchain", "LangChainInstrumentor"),
    "openllmetry": ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor"),
}
PACKAGES = (
    "langchain",
    "langchain-core",
    "langchain-openai",
    "langgraph",
    "opentelemetry-sdk",
    "openinference-instrumentation-langchain",
    "opentelemetry-instrumentation-langchain",
)
DOCUMENTS = ("You can return an order within 30 days.", "Refunds go back to the card that paid.")
FOUND = "Couriers collect parcels free of charge for 90 days."
"""In no document: only the result of the tool that this agent is says so."""
FINAL = "You have 30 days to return it."
CHAIN = "Within 30 days."


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Message of the model, by who asks and how far it has come."""
    system, last = body["messages"][0]["content"], body["messages"][-1]
    if system.startswith("Supervisor"):
        name, arguments, said = "ask_researcher", {"question": "How long can an order be returned?"}, FINAL
    elif system.startswith("Researcher"):
        name, arguments, said = "search", {"query": "return period"}, FOUND
    else:
        return {"role": "assistant", "content": CHAIN}
    if last["role"] == "tool":
        return {"role": "assistant", "content": said}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{name}", "type": "function", "function": function}],
    }


class Model(BaseHTTPRequestHandler):
    """chat/completions on loopback."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = reply(body)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "gpt-4o-2024-08-06",
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        }
        payload = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def run(url: str) -> None:
    """Agents two deep, then a chain."""
    load = importlib.import_module
    document = load("langchain_core.documents").Document
    tool = load("langchain_core.tools").tool
    prompt_of = load("langchain_core.prompts").ChatPromptTemplate
    create_agent = load("langchain.agents").create_agent
    model = load("langchain_openai").ChatOpenAI(model="gpt-4o", base_url=url, api_key="none", temperature=0.2)

    class Shelf(load("langchain_core.retrievers").BaseRetriever):  # type: ignore[misc]  # loaded by name
        """Finds the same documents whatever is asked."""

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return [document(page_content=text, metadata={"page": i}) for i, text in enumerate(DOCUMENTS)]

    shelf = Shelf()

    @tool  # type: ignore[untyped-decorator]
    def search(query: str) -> str:
        """Search the handbook."""
        return "\n".join(one.page_content for one in shelf.invoke(query))

    researcher = create_agent(model, tools=[search], system_prompt="Researcher: use the handbook.")

    @tool  # type: ignore[untyped-decorator]
    def ask_researcher(question: str) -> str:
        """Ask somebody who knows the handbook."""
        told = researcher.invoke({"messages": [{"role": "user", "content": question}]})
        return str(told["messages"][-1].content)

    supervisor = create_agent(model, tools=[ask_researcher], system_prompt="Supervisor: delegate.")
    supervisor.invoke({"messages": [{"role": "user", "content": "How long do I have to send it back?"}]})

    prompt = prompt_of.from_messages([("system", "Answer from: {documents}"), ("user", "{question}")])
    whole = {"documents": shelf, "question": lambda question: question} | prompt | model
    whole.invoke("How long can it be returned?")


def record(name: str) -> None:
    """Run under one instrumentation; writes all spans of the run as one export."""
    load = importlib.import_module
    provider = load("opentelemetry.sdk.trace").TracerProvider(
        resource=load("opentelemetry.sdk.resources").Resource({"service.name": "helpdesk"})
    )
    kept = load("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider.add_span_processor(load("opentelemetry.sdk.trace.export").SimpleSpanProcessor(kept))
    module, kind = INSTRUMENTORS[name]
    getattr(load(module), kind)().instrument(tracer_provider=provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    run(f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    provider.shutdown()
    encode = load("opentelemetry.exporter.otlp.proto.common.trace_encoder").encode_spans
    (FOLDER / f"langchain-{name}.otlp").write_bytes(encode(kept.get_finished_spans()).SerializeToString())


def main() -> None:
    """Record both, and the versions that were recorded."""
    FOLDER.mkdir(exist_ok=True)
    for name in INSTRUMENTORS:
        subprocess.run([sys.executable, __file__, name], check=True)
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    (FOLDER / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1]) if sys.argv[1:] else main()
