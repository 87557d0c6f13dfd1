"""Write traffic.jsonl: 6,000 requests as a gateway logs them, each with the system prompt of today."""

import json
import random

from server import DEPARTMENTS

SYSTEM = "You route letters of customers. Answer with the department: billing, shipping, returns or account."
FILLERS = ("Hello, my", "I think the", "Please help: the", "Again the", "Since Monday the")

draw = random.Random(0)
with open("traffic.jsonl", "w", encoding="utf-8") as file:
    for number in range(6000):
        about = draw.choices(list(DEPARTMENTS), weights=(4, 3, 2, 1))[0]
        words = draw.sample(DEPARTMENTS[about].split(), draw.randint(2, 5))
        letter = f"{draw.choice(FILLERS)} {' '.join(words)}."
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": letter}]
        body = {"model": "router", "messages": messages, "temperature": 0.7, "max_tokens": 20}
        line = {"id": f"r{number}", "request": body, "attrs": {"country": draw.choice(["de", "fr"])}}
        print(json.dumps(line), file=file)
