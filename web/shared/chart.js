// Lines over time, drawn in SVG.

const svg = (name, attributes = {}, text) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

/** Round steps of which about n reach top. */
function ticks(top, n) {
  const rough = top / n, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough) ?? rough;
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
}

/**
 * Makes element a chart. Each update draws it anew.
 * @param {HTMLElement} element
 * @param {{x: (x: number) => string, y: (y: number) => string}} words how figures of the axes read
 */
export function chart(element, { x, y }) {
  const space = { left: 56, right: 12, top: 12, bottom: 26 };
  let shown;
  /**
   * @param {object} data
   * @param {string} data.title what those hear who do not see it
   * @param {[number, number]} data.range of x
   * @param {number} [data.least] what y reaches at least
   * @param {{style: string, points: [number, number][], area?: boolean}[]} data.series style is a class of chart.css
   */
  function update(data) {
    shown = data;
    const width = Math.max(element.clientWidth, 240), height = Math.max(element.clientHeight, 140);
    const { series, range: [from, to], least = 1e-9 } = data;
    const top = Math.max(least, ...series.flatMap(s => s.points.map(p => p[1]))) * 1.08;
    const atX = v => space.left + (v - from) / (to - from || 1) * (width - space.left - space.right);
    const atY = v => height - space.bottom - v / top * (height - space.top - space.bottom);
    const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': data.title });
    for (const tick of ticks(top, height < 200 ? 3 : 4)) {
      drawing.append(svg('line', { class: 'grid', x1: space.left, x2: width - space.right, y1: atY(tick), y2: atY(tick) }),
        svg('text', { class: 'tick', x: space.left - 8, y: atY(tick) + 4, 'text-anchor': 'end' }, y(tick)));
    }
    const parts = width < 480 ? 2 : 4;
    for (let i = 0; i <= parts; i++) {
      const at = from + (to - from) * i / parts;
      drawing.append(svg('text', { class: 'tick', x: atX(at), y: height - 8, 'text-anchor': i === 0 ? 'start' : i === parts ? 'end' : 'middle' }, x(at)));
    }
    for (const { points, style, area } of series) {
      if (!points.length) continue;
      const line = points.map(([px, py], i) => `${i ? 'L' : 'M'}${atX(px).toFixed(1)} ${atY(py).toFixed(1)}`).join('');
      if (area) drawing.append(svg('path', { class: `area ${style}`, d: `${line}L${atX(points.at(-1)[0]).toFixed(1)} ${atY(0)}L${atX(points[0][0]).toFixed(1)} ${atY(0)}Z` }));
      drawing.append(svg('path', { class: `line ${style}`, d: line }));
    }
    element.replaceChildren(drawing);
  }
  new ResizeObserver(() => { if (shown) update(shown); }).observe(element);
  return { update };
}
