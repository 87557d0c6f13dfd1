"""Data Docs of Great Expectations, as one page without scripts."""

from html import escape
from html.parser import HTMLParser

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; sandbox"
_TAGS = frozenset({
    *("a", "b", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "ol", "p"),
    *("pre", "section", "small", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
})  # fmt: skip
_SKIPPED = frozenset({
    *("button", "footer", "form", "head", "iframe", "input", "label", "nav", "noscript", "object", "script"),
    *("select", "style", "svg", "textarea"),
})  # fmt: skip
_VOID = frozenset({"br", "hr", "input", "img", "link", "meta"})
_ATTRIBUTES = ("class", "id", "colspan", "rowspan", "hidden")
_STYLES = """
:root{color-scheme:light dark;--line:#8885;--bad:#b3261e;--good:#1b7f3b}
@media(prefers-color-scheme:dark){:root{--bad:#ff8a80;--good:#7ad69a}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;padding:0 1rem;max-width:70rem}
h1{font-size:1.4rem}h5{font-size:1.05rem;margin:1.5rem 0 .3rem}h6{font-size:.95rem;margin:.8rem 0 .2rem}
table{border-collapse:collapse;width:100%}td,th{border-top:1px solid var(--line);padding:.35rem .5rem;
text-align:left;vertical-align:top}
td{overflow-wrap:anywhere}th{white-space:nowrap}
.badge{border:1px solid var(--line);border-radius:.3rem;padding:0 .3rem}
.text-danger{color:var(--bad)}.text-success{color:var(--good)}i{font-style:normal}
.fa-times::before{content:"\\2717"}.fa-check-circle::before{content:"\\2713"}
.fa-exclamation-triangle::before{content:"\\26A0"}
"""


def page(drawn: str, title: str) -> str:
    kept = _Kept()
    kept.feed(drawn[max(drawn.find('<div id="section-1"'), 0) :])  # before it: filters that need scripts
    kept.close()
    kept.parts += [f"</{tag}>" for tag in reversed(kept.open)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLES}</style></head>'
        f"<body><h1>{escape(title)}</h1>\n{''.join(kept.parts)}\n</body></html>\n"
    )


class _Kept(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipped: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped or tag in _SKIPPED:
            if tag not in _VOID:
                self._skipped.append(tag)
            return
        if tag in _TAGS:
            kept = "".join(f' {key}="{escape(value or "")}"' for key, value in attrs if key in _ATTRIBUTES)
            self.parts.append(f"<{tag}{kept}>")
            if tag not in _VOID:
                self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            while tag in self._skipped and self._skipped.pop() != tag:
                pass
        elif tag in self.open:
            while (last := self.open.pop()) != tag:
                self.parts.append(f"</{last}>")
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.parts.append(escape(data) if data.strip() else " ")
