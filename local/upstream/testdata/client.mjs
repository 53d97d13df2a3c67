// OpenAI's client asks for all that the built-in model can do, of the model itself or of
// what stands before it. It prints one line for each thing.
import OpenAI from "openai";

const [url, apiKey, model, vectorModel] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: url + "/v1", apiKey, maxRetries: 0 });
const chat = openai.chat.completions;
const weather = {
  name: "get_weather",
  description: "The weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  strict: true,
};
const ask = (content) => ({ model, max_tokens: 500, messages: [{ role: "user", content }] });
const tools = [{ type: "function", function: weather }];

// The tool runner calls the function and ends with an answer.
const called = [];
const runner = chat.runTools({
  ...ask("How is the weather in Leeds?"),
  tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: (args) => (called.push(args), { degrees: 12.5 }) } }],
});
const end = await runner.finalContent();
console.log("runTools", JSON.stringify(called), /figures: 12\.5\./.test(end), JSON.stringify(await runner.totalUsage()).includes('"total_tokens"'));

const stream = chat.stream({ ...ask("[[tools:2]]"), tools });
const done = [];
stream.on("tool_calls.function.arguments.done", (e) => done.push([e.index, e.name, e.arguments]));
const streamed = (await stream.finalChatCompletion()).choices[0];
console.log("stream", JSON.stringify(done), streamed.finish_reason, streamed.message.tool_calls.length);

const forced = (await chat.create({ ...ask("Hi."), tools, tool_choice: { type: "function", function: { name: "get_weather" } } })).choices[0];
console.log("forced", forced.message.content, forced.message.tool_calls[0].function.arguments, forced.finish_reason);

const pixel = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const image = await chat.create(ask([{ type: "text", text: "What is it?" }, { type: "image_url", image_url: { url: pixel, detail: "low" } }]));
console.log("image", /picture of 1 x 1 pixels/.test(image.choices[0].message.content), image.usage.prompt_tokens);

// The client asks for base64 by itself, and gives numbers.
const vectors = (await openai.embeddings.create({ model: vectorModel, input: ["a red house", "the red house", "blue"], dimensions: 256 })).data;
const dot = (a, b) => a.embedding.reduce((sum, v, i) => sum + v * b.embedding[i], 0);
console.log("embeddings", vectors.length, vectors[0].embedding.length, dot(vectors[0], vectors[1]) > 0.5, dot(vectors[0], vectors[2]) < 0.3);

const thought = (await chat.create({ ...ask("[[think]]"), reasoning_effort: "low" })).choices[0].message;
console.log("reasoning", thought.reasoning_content.length > 9, /built-in/.test(thought.content));
