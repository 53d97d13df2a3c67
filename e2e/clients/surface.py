"""Does what surface.mjs does, with the clients of Python."""
import json, math, sys
from pydantic import BaseModel

setting = json.load(sys.stdin)
base_url, token, image = setting["url"] + "/v1", setting["token"], setting["image"]
chat, vectors = "assistant", "vectors"
question = "[[tool:weather]] What is the weather in Rome?"
parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


class City(BaseModel):
    city: str
    people: int


def found(city):
    return {"city": type(city.city).__name__, "people": type(city.people).__name__}


def unit(vector):
    return abs(math.hypot(*vector) - 1) < 1e-3


def weather(city: str) -> str:
    """The weather of a city"""
    return json.dumps({"degrees": 4711})


def openai():
    from openai import OpenAI
    client = OpenAI(base_url=base_url, api_key=token, max_retries=0)
    hi = [{"role": "user", "content": "Hi"}]
    messages = [{"role": "user", "content": question}]
    tools = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": parameters, "strict": True}}]
    flat = [{"type": "function", **tools[0]["function"]}]
    chats = client.chat.completions if hasattr(client.chat.completions, "parse") else client.beta.chat.completions

    def with_tools():
        answer = client.chat.completions.create(model=chat, messages=messages, tools=tools).choices[0]
        call = answer.message.tool_calls[0]
        then = client.chat.completions.create(model=chat, tools=tools, messages=[
            *messages, answer.message, {"role": "tool", "tool_call_id": call.id, "content": weather("Rome")}])
        return {"finish": answer.finish_reason, "name": call.function.name, "city": type(json.loads(call.function.arguments)["city"]).__name__,
                "told": "4711" in then.choices[0].message.content}

    def stream():
        with chats.stream(model=chat, messages=messages, tools=tools) as events:
            pieces = sum(event.type == "tool_calls.function.arguments.delta" for event in events)
            answer = events.get_final_completion().choices[0]
        return {"finish": answer.finish_reason, "city": type(json.loads(answer.message.tool_calls[0].function.arguments)["city"]).__name__, "pieces": pieces > 1}

    def parse():
        return found(chats.parse(model=chat, messages=hi, response_format=City).choices[0].message.parsed)

    def parse_tools():
        from openai import pydantic_function_tool
        answer = chats.parse(model=chat, messages=[{"role": "user", "content": "[[tool:City]] Hi"}], tools=[pydantic_function_tool(City)])
        return found(answer.choices[0].message.tool_calls[0].function.parsed_arguments)

    def picture():
        content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": image}}]
        text = client.chat.completions.create(model=chat, messages=[{"role": "user", "content": content}]).choices[0].message.content
        return {"seen": "64" in text and "48" in text}

    def embeddings():
        made = client.embeddings.create(model=vectors, input=["the weather in Rome", "a boat"])
        return {"vectors": len(made.data), "unit": unit(made.data[1].embedding), "used": made.usage.prompt_tokens > 0}

    def responses():
        r = client.responses.create(model=chat, input="Hi", instructions="Be brief.")
        return {"text": bool(r.output_text), "status": r.status, "used": r.usage.total_tokens > 0}

    def responses_stream():
        with client.responses.stream(model=chat, input="Hi") as events:
            said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            final = events.get_final_response()
        return {"same": final.output_text == said and said != "", "status": final.status}

    def responses_parse():
        return found(client.responses.parse(model=chat, input="Hi", text_format=City).output_parsed)

    def responses_tools():
        first = client.responses.create(model=chat, input=question, tools=flat, store=False)
        call = next(item for item in first.output if item.type == "function_call")
        then = client.responses.create(model=chat, tools=flat, store=False, input=[
            {"role": "user", "content": question}, *first.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": weather("Rome")}])
        return {"name": call.name, "told": "4711" in then.output_text}

    cases = [with_tools, stream, parse, parse_tools, picture, embeddings]
    return cases + [responses, responses_stream, responses_parse, responses_tools] if hasattr(client.responses, "parse") else cases


def langchain():
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    options = {"base_url": base_url, "api_key": token, "max_retries": 0}

    def with_tools(**more):
        look = tool(weather)
        model = ChatOpenAI(model=chat, **options, **more).bind_tools([look])
        messages = [HumanMessage(question)]
        answer = model.invoke(messages)
        messages += [answer, look.invoke(answer.tool_calls[0])]
        return {"name": answer.tool_calls[0]["name"], "told": "4711" in str(model.invoke(messages).content)}

    def tools_streamed():
        return with_tools(streaming=True)

    def tools_of_responses():
        return with_tools(use_responses_api=True, store=False)

    def parse():
        return found(ChatOpenAI(model=chat, **options).with_structured_output(City).invoke("Hi"))

    def embeddings():
        # Without the check of the context its texts go out as they are, not as tokens.
        made = OpenAIEmbeddings(model=vectors, check_embedding_ctx_length=False, **options).embed_documents(["the weather in Rome", "a boat"])
        return {"vectors": len(made), "unit": unit(made[0])}

    return [with_tools, tools_streamed, tools_of_responses, parse, embeddings]


def instructor():
    import instructor as package
    from openai import OpenAI

    def parse():
        client = package.from_openai(OpenAI(base_url=base_url, api_key=token, max_retries=0))
        return found(client.chat.completions.create(model=chat, response_model=City, messages=[{"role": "user", "content": "Hi"}], max_retries=0))

    return [parse]


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=base_url, api_key=token)

    def parse():
        return found(Agent(OpenAIChatModel(chat, provider=provider), output_type=City).run_sync("Hi").output)

    def tools():
        return {"told": "4711" in Agent(OpenAIChatModel(chat, provider=provider), tools=[weather]).run_sync(question).output}

    def tools_of_responses():
        return {"told": "4711" in Agent(OpenAIResponsesModel(chat, provider=provider), tools=[weather]).run_sync(question).output}

    return [parse, tools, tools_of_responses]


for case in {f.__name__: f for f in (openai, langchain, instructor, pydantic_ai)}[sys.argv[1]]():
    line = {"case": case.__name__}
    try:
        line["got"] = case()
    except Exception as error:
        line["thrown"] = f"{type(error).__name__}: {error}"
    print(json.dumps(line), flush=True)
