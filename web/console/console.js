import { translate } from '/shared/words.js';

translate({ en: {}, de: {} });
