/** The lines of a body as they come. Browsers differ in what else of a stream they can. @param {ReadableStream<Uint8Array>} body */
export async function* lines(body) {
  const reader = body.getReader(), decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    const whole = (rest + decoder.decode(value, { stream: !done })).split('\n');
    rest = whole.pop() ?? '';
    yield* whole;
    if (done) return;
  }
}
