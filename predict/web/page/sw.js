// Keeps the page for when there is no network. The build sets the version; every version has a cache of its own.

const CACHE = "joulecast-@VERSION@";
const SHELL = ["./", "app.js", "chart.js", "element.js", "icon.svg", "joulecast.wasm", "manifest.webmanifest", "model.js", "plan.toml", "state.js", "style.css", "tree.js", "views.js", "words.js"];

self.addEventListener("install", event => {
  self.skipWaiting();
  event.waitUntil(caches.open(CACHE).then(cache => cache.addAll(SHELL)));
});

self.addEventListener("activate", event => {
  const old = name => name.startsWith("joulecast-") && name !== CACHE;
  event.waitUntil(caches.keys().then(names => Promise.all(names.filter(old).map(name => caches.delete(name)))).then(() => self.clients.claim()));
});

// The data of all GPUs, once the page is up.
self.addEventListener("message", event => {
  if (!Array.isArray(event.data?.keep)) return;
  const keep = event.data.keep.filter(name => /^data\/[\w-]+\.bin$/.test(name));
  event.waitUntil(caches.open(CACHE).then(async cache => {
    for (const name of keep) if (!(await cache.match(name))) await cache.add(name).catch(() => {});
  }));
});

self.addEventListener("fetch", event => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== location.origin) return;
  event.respondWith(caches.open(CACHE).then(async cache => (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request)));
});
