// What official clients do with tools, images, embeddings and the Responses API, by the
// book and without a line for tokenfuse:
//
//   node surface.mjs CLIENT <<< '{"url": …, "token": …, "image": "data:image/png;base64,…"}'
//
// prints for each case, as a line of JSON, what it gave or what it was refused with.
import { text as read } from 'node:stream/consumers';
import { z } from 'zod';

const { url, token, image } = JSON.parse(await read(process.stdin));
const baseURL = `${url}/v1`;
const chat = 'assistant', vectors = 'vectors';
const ask = '[[tool:weather]] What is the weather in Rome?';
const City = z.object({ city: z.string(), people: z.number().int() });
const length = v => Math.hypot(...v);

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const weather = async () => JSON.stringify({ degrees: 4711 });

async function openai() {
  const { default: OpenAI } = await import('openai');
  const { zodResponseFormat, zodTextFormat } = await import('openai/helpers/zod');
  const client = new OpenAI({ baseURL, apiKey: token, maxRetries: 0 });
  const completions = client.chat.completions.runTools ? client.chat.completions : client.beta.chat.completions;
  const tools = [{ type: 'function', function: { name: 'weather', description: 'The weather of a city', parameters, strict: true } }];
  const flat = [{ type: 'function', name: 'weather', description: 'The weather of a city', parameters, strict: true }];
  const messages = [{ role: 'user', content: ask }];
  const cases = {
    async tools() {
      const { choices: [choice], usage } = await client.chat.completions.create({ model: chat, messages, tools });
      const call = choice.message.tool_calls[0];
      return { finish: choice.finish_reason, name: call.function.name, city: typeof JSON.parse(call.function.arguments).city, used: usage.total_tokens > 0 };
    },
    async forced() {
      const { choices: [choice] } = await client.chat.completions.create({
        model: chat, messages: [{ role: 'user', content: 'Hi' }], tools, tool_choice: { type: 'function', function: { name: 'weather' } }, parallel_tool_calls: false,
      });
      return { name: choice.message.tool_calls[0].function.name };
    },
    async stream() {
      const runner = completions.stream({ model: chat, messages, tools });
      let pieces = 0;
      runner.on('chunk', chunk => { pieces += chunk.choices[0]?.delta.tool_calls?.length ?? 0; });
      const { choices: [choice] } = await runner.finalChatCompletion();
      const call = choice.message.tool_calls[0];
      return { finish: choice.finish_reason, name: call.function.name, city: typeof JSON.parse(call.function.arguments).city, pieces: pieces > 1 };
    },
    async parse() {
      const { choices: [{ message }] } = await completions.parse({ model: chat, messages: [{ role: 'user', content: 'Hi' }], response_format: zodResponseFormat(City, 'city') });
      return { city: typeof message.parsed.city, people: Number.isInteger(message.parsed.people) };
    },
    async runTools() {
      const runner = completions.runTools({ model: chat, messages, tools: [{ type: 'function', function: { name: 'weather', parse: JSON.parse, function: weather, parameters, description: 'The weather of a city' } }] });
      return { told: (await runner.finalContent()).includes('4711') };
    },
    async runToolsStreamed() {
      const runner = completions.runTools({ model: chat, messages, stream: true, tools: [{ type: 'function', function: { name: 'weather', parse: JSON.parse, function: weather, parameters, description: 'The weather of a city' } }] });
      return { told: (await runner.finalContent()).includes('4711') };
    },
    async image() {
      const content = [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url: image, detail: 'low' } }];
      const { choices: [{ message }] } = await client.chat.completions.create({ model: chat, messages: [{ role: 'user', content }] });
      return { seen: message.content.includes('64') && message.content.includes('48') };
    },
    async embeddings() {
      const { data, usage } = await client.embeddings.create({ model: vectors, input: ['the weather in Rome', 'a boat'] });
      return { vectors: data.length, unit: Math.abs(length(data[1].embedding) - 1) < 1e-3, used: usage.prompt_tokens > 0 };
    },
    async embeddingsShort() {
      const { data } = await client.embeddings.create({ model: vectors, input: 'the weather in Rome', encoding_format: 'float', dimensions: 64 });
      return { vectors: data.length, size: data[0].embedding.length };
    },
  };
  if (!client.responses?.parse) return cases;
  return Object.assign(cases, {
    async responses() {
      const r = await client.responses.create({ model: chat, input: 'Hi', instructions: 'Be brief.' });
      return { text: r.output_text.length > 0, status: r.status, store: r.store, used: r.usage.total_tokens > 0 };
    },
    async responsesStream() {
      const stream = client.responses.stream({ model: chat, input: 'Hi' });
      const events = [];
      let said = '', next = 0, numbered = true;
      for await (const event of stream) {
        if (events.at(-1) !== event.type) events.push(event.type);
        numbered &&= event.sequence_number === next++;
        if (event.type === 'response.output_text.delta') said += event.delta;
      }
      const r = await stream.finalResponse();
      const text = r.output.flatMap(item => item.content ?? []).map(part => part.text).join(''); // output_text is not in the older
      return { events, numbered, same: text === said && said !== '' };
    },
    async responsesCut() {
      const r = await client.responses.create({ model: chat, input: '[[long]] Hi', max_output_tokens: 16 });
      return { status: r.status, reason: r.incomplete_details.reason };
    },
    async responsesParse() {
      const r = await client.responses.parse({ model: chat, input: 'Hi', text: { format: zodTextFormat(City, 'city') } });
      return { city: typeof r.output_parsed.city, people: Number.isInteger(r.output_parsed.people) };
    },
    async responsesTools() {
      const first = await client.responses.create({ model: chat, input: ask, tools: flat, store: false });
      const call = first.output.find(item => item.type === 'function_call');
      const then = await client.responses.create({
        model: chat, tools: flat, store: false,
        input: [{ role: 'user', content: ask }, ...first.output, { type: 'function_call_output', call_id: call.call_id, output: await weather() }],
      });
      return { name: call.name, city: typeof JSON.parse(call.arguments).city, told: then.output_text.includes('4711') };
    },
    async responsesImage() {
      const r = await client.responses.create({ model: chat, input: [{ role: 'user', content: [{ type: 'input_text', text: 'What is this?' }, { type: 'input_image', image_url: image, detail: 'low' }] }] });
      return { seen: r.output_text.includes('64') && r.output_text.includes('48') };
    },
    async responsesReasoning() {
      const r = await client.responses.create({ model: chat, input: 'Hi', reasoning: { effort: 'low' } });
      return { status: r.status, thought: r.usage.output_tokens_details.reasoning_tokens > 0 };
    },
  });
}

async function aiSDK() {
  const { createOpenAI } = await import('@ai-sdk/openai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  const { embedMany, generateObject, generateText, stepCountIs, streamText, tool } = await import('ai');
  const models = createOpenAI({ baseURL, apiKey: token });
  const compatible = createOpenAICompatible({ name: 'tokenfuse', baseURL, apiKey: token, includeUsage: true });
  const tools = { weather: tool({ description: 'The weather of a city', inputSchema: z.object({ city: z.string() }), execute: weather }) };
  const stateless = { maxRetries: 0, providerOptions: { openai: { store: false } } };
  const withTools = async model => {
    const result = streamText({ model, prompt: ask, tools, stopWhen: stepCountIs(3), ...stateless });
    let said = '';
    for await (const piece of result.textStream) said += piece;
    return { told: said.includes('4711'), steps: (await result.steps).length, used: (await result.totalUsage).totalTokens > 0 };
  };
  return {
    async text() {
      const { text, usage } = await generateText({ model: models(chat), prompt: 'Hi', ...stateless });
      return { text: text.length > 0, used: usage.totalTokens > 0 };
    },
    tools: () => withTools(models(chat)),
    toolsOfChat: () => withTools(models.chat(chat)),
    toolsOfCompatible: () => withTools(compatible(chat)),
    async image() {
      const result = streamText({ model: models(chat), messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, { type: 'image', image }] }], ...stateless });
      const text = await result.text;
      return { seen: text.includes('64') && text.includes('48') };
    },
    async object() {
      const { object } = await generateObject({ model: models(chat), schema: City, prompt: 'Hi', ...stateless });
      return { city: typeof object.city, people: Number.isInteger(object.people) };
    },
    async embedMany() {
      const { embeddings, usage } = await embedMany({ model: models.embedding(vectors), values: ['the weather in Rome', 'a boat'], maxRetries: 0 });
      return { vectors: embeddings.length, unit: Math.abs(length(embeddings[0]) - 1) < 1e-3, used: usage.tokens > 0 };
    },
    // By default it refers to what it takes for stored, from the second turn on.
    async stored() {
      const messages = [{ role: 'user', content: 'Hi' }];
      const first = await generateText({ model: models(chat), messages, maxRetries: 0 });
      messages.push(...first.response.messages, { role: 'user', content: 'And now?' });
      return { text: (await generateText({ model: models(chat), messages, maxRetries: 0 })).text };
    },
    async storedNot() {
      const messages = [{ role: 'user', content: 'Hi' }];
      const first = await generateText({ model: models(chat), messages, ...stateless });
      messages.push(...first.response.messages, { role: 'user', content: 'And now?' });
      return { text: (await generateText({ model: models(chat), messages, ...stateless })).text.length > 0 };
    },
  };
}

async function langchain() {
  const { ChatOpenAI, OpenAIEmbeddings } = await import('@langchain/openai');
  const { tool } = await import('@langchain/core/tools');
  const { HumanMessage } = await import('@langchain/core/messages');
  const options = { apiKey: token, configuration: { baseURL }, maxRetries: 0 };
  const look = tool(weather, { name: 'weather', description: 'The weather of a city', schema: z.object({ city: z.string() }) });
  const whole = (model, messages) => model.invoke(messages);
  const streamed = async (model, messages) => {
    let all;
    for await (const chunk of await model.stream(messages)) all = all ? all.concat(chunk) : chunk;
    return all;
  };
  const withTools = async (run, more) => {
    const model = new ChatOpenAI({ model: chat, ...options, ...more }).bindTools([look]);
    const messages = [new HumanMessage(ask)];
    const answer = await run(model, messages);
    messages.push(answer, await look.invoke(answer.tool_calls[0]));
    return { name: answer.tool_calls[0].name, told: (await run(model, messages)).text.includes('4711') };
  };
  return {
    tools: () => withTools(whole),
    toolsStreamed: () => withTools(streamed),
    toolsOfResponses: () => withTools(whole, { useResponsesApi: true, zdrEnabled: true }),
    toolsOfResponsesStreamed: () => withTools(streamed, { useResponsesApi: true, zdrEnabled: true }),
    async object() {
      const found = await new ChatOpenAI({ model: chat, ...options }).withStructuredOutput(City).invoke('Hi');
      return { city: typeof found.city, people: Number.isInteger(found.people) };
    },
    async embeddings() {
      const list = await new OpenAIEmbeddings({ model: vectors, ...options }).embedDocuments(['the weather in Rome', 'a boat']);
      return { vectors: list.length, unit: Math.abs(length(list[0]) - 1) < 1e-3 };
    },
  };
}

for (const [name, run] of Object.entries(await { openai, aiSDK, langchain }[process.argv[2]]())) {
  const got = { case: name };
  try {
    got.got = await run();
  } catch (error) {
    got.thrown = String(error?.responseBody ?? error?.stack ?? error);
  }
  console.log(JSON.stringify(got));
}
process.exit(0);
