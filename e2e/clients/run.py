"""Does what run.mjs does, for the Python programs of docs/clients.md."""
import json, os, runpy, sys
from pydantic import BaseModel


class City(BaseModel):
    city: str
    people: int


def run(client, call, question, pieces):
    if call == "parse":
        return {"found": dict(client["parse"](question, City))}
    if "parse_and_count" in client:  # instructor knows nothing but objects
        if call == "stream":
            return {"tokens": client["stream"](question, City, lambda part: pieces.append(part.model_dump_json()))}
        found, tokens = client["parse_and_count"](question, City)
        return {"text": found.model_dump_json(), "tokens": tokens}
    if call == "stream":
        return {"tokens": client["stream"](question, pieces.append)}
    text, tokens = client["ask"](question)
    return {"text": text, "tokens": tokens}


for step in json.load(sys.stdin):
    os.environ["TOKENFUSE_URL"] = step["url"]
    os.environ.pop("TOKENFUSE_TOKEN", None)
    if step.get("token"):
        os.environ["TOKENFUSE_TOKEN"] = step["token"]
    client, pieces = runpy.run_path(sys.argv[1]), []
    try:
        got = run(client, step["call"], step["question"], pieces)
    except Exception as error:
        got = {"thrown": f"{type(error).__name__}: {error}"}
        try:
            got["refusal"] = client["refusal"](error)
        except Exception:
            pass  # thrown says what it is
    got["text"] = got.get("text") or "".join(pieces)
    print(json.dumps(got), flush=True)
