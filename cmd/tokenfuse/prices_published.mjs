// Prints what @pydantic/genai-prices knows of models. Standard input:
// {"date": "2026-11-30", "models": [{"kind", "base_url", "id"}]}. Standard output:
// a list, in their order, of {"id", "prices"} or null. Uses no network.
import { readFileSync } from 'node:fs'
import { calcPrice, findProvider } from '@pydantic/genai-prices'

const { date, models } = JSON.parse(readFileSync(0, 'utf8'))

const providers = {
  openai: ({ base_url }) => findProvider({ providerApiUrl: base_url }),
  anthropic: () => findProvider({ providerId: 'anthropic' }),
  bedrock: () => findProvider({ providerId: 'aws' }),
}

const published = models.map((model) => {
  const provider = providers[model.kind](model)
  const found = provider && calcPrice({ input_tokens: 1 }, model.id, { provider, timestamp: new Date(date) })
  return found ? { id: found.model.id, prices: found.model_price } : null
})

process.stdout.write(JSON.stringify(published))
