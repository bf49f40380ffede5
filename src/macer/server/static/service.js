// Requests to the service.

export class Refused extends Error {}

async function checked(response) {
  if (response.ok) return response;
  let message = `the service answers ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch { /* no JSON: the status says it */ }
  throw new Refused(message);
}

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

export async function models() {
  return (await checked(await fetch("models"))).json();
}

export async function attack(image, parameters, { key, signal }) {
  const query = new URLSearchParams(parameters);
  const request = { method: "POST", body: image, headers: headers(key), signal };
  return (await checked(await fetch(`attack?${query}`, request))).json();
}

// Yields [kind, content] for each server-sent event.
export async function* stream(image, parameters, { key, signal }) {
  const query = new URLSearchParams(parameters);
  const request = { method: "POST", body: image, headers: headers(key), signal };
  const response = await checked(await fetch(`stream?${query}`, request));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const [kind, data] = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      yield [kind.slice("event: ".length), JSON.parse(data.slice("data: ".length))];
    }
  }
}
