// Layers folded by module: a path's parts are the levels, equal neighbours are one line.

/** Parts of a layer's path, as PyTorch or ONNX write it. */
function parts(name) {
  const clean = name.replace(/^\/+/, "");
  return (clean.includes("/") ? clean.split("/") : clean.split(".")).filter(Boolean);
}

const node = name => ({ name, count: 1, time: 0, energy: 0, kinds: new Set(), tiers: new Set(), outside: false, children: [], index: new Map(), kernels: [] });

function add(into, layer) {
  into.time += layer.time_s;
  into.energy += layer.energy_j;
  into.tiers.add(layer.tier);
  into.outside ||= !layer.in_domain && layer.tier !== "roofline";
}

// Alike: the same kinds in the same order, each of the same operations.
function signature(n) {
  n.signature ??= `${n.kernels.join(",")}[${n.children.map(c => `${/^\d+$/.test(c.name) ? "#" : c.name}${signature(c)}`).join(";")}]`;
  return n.signature;
}

const stem = name => name.replace(/\d+$/, "");

function merged(run) {
  if (run.length === 1) return run[0];
  const all = node(`${run[0].name} … ${run.at(-1).name}`);
  all.count = run.reduce((sum, n) => sum + n.count, 0);
  for (const n of run) {
    all.time += n.time;
    all.energy += n.energy;
    all.outside ||= n.outside;
    n.tiers.forEach(t => all.tiers.add(t));
    n.kinds.forEach(k => all.kinds.add(k));
  }
  all.children = fold(run[0].children.map((_, i) => {
    const each = run.map(n => n.children[i]);
    return { ...merged(each), name: each[0].name, count: each[0].count };
  }));
  return all;
}

function fold(children) {
  const runs = [];
  for (const child of children) {
    const last = runs.at(-1)?.[0];
    const alike = last && /\d$/.test(child.name) && stem(last.name) === stem(child.name) && signature(last) === signature(child);
    if (alike) runs.at(-1).push(child); else runs.push([child]);
  }
  return runs.map(run => {
    const one = merged(run);
    if (run.length === 1) one.children = fold(one.children);
    // A module of one part is that part.
    return one.children.length === 1 && one.count === 1 && !one.kernels.length
      ? { ...one.children[0], name: `${one.name}.${one.children[0].name}` } : one;
  });
}

/** Modules of a prediction's layers, in their order. */
export function modules(layers) {
  const root = node("");
  for (const layer of layers) {
    let at = root;
    for (const part of parts(layer.name)) {
      if (!at.index.has(part)) {
        const child = node(part);
        at.index.set(part, child);
        at.children.push(child);
      }
      at = at.index.get(part);
      add(at, layer);
    }
    at.kinds.add(layer.kind);
    at.kernels.push(`${layer.kind}:${layer.phase}:${layer.ops}`);
  }
  return fold(root.children);
}

const MOST = 14;

/** The costliest of many, in their order, and the others as one. */
export function shortened(list) {
  if (list.length <= MOST) return list;
  const shown = new Set([...list].sort((a, b) => b.time - a.time).slice(0, MOST - 2));
  const others = list.filter(n => !shown.has(n));
  const rest = node(`${others.length} others`);
  for (const n of others) {
    rest.time += n.time;
    rest.energy += n.energy;
    rest.outside ||= n.outside;
    n.tiers.forEach(t => rest.tiers.add(t));
  }
  rest.children = others;
  return [...list.filter(n => shown.has(n)), rest];
}
