// Visits the pages that dev serves, as they open:  node pages.mjs URL…
import { accessible, args, close, visit } from './rig.mjs';

for (const url of args) {
  for (const theme of ['light', 'dark']) {
    for (const width of [390, 1440]) {
      await visit({ url, width, theme }, page => accessible(page));
    }
  }
}
await close();
