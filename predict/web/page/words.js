// Numbers as text; verdicts come from the module in words.

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

/** So many significant digits, thousands marked. */
export function digits(value, count = 3) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  const rounded = Number(value.toPrecision(count));
  return rounded.toLocaleString("en", { maximumFractionDigits: Math.max(0, count - before), minimumFractionDigits: 0 });
}

/** A value with its unit: 0.0123 s is 12.3 ms, 0.003 s 3.00 ms, as the command has them. */
export function withUnit(value, unit, count = 3) {
  const size = Math.abs(Number(value.toPrecision(count)));
  const [factor, prefix] = PREFIXES.find(([factor]) => size >= factor) ?? (size === 0 ? [1, ""] : PREFIXES.at(-1));
  const number = value / factor;
  return `${Math.abs(number) >= 1 && size / factor < 1000 ? number.toPrecision(count) : digits(number, count)}\u00a0${prefix}${unit}`;
}

/** An interval with its unit said once where it is the same. */
export function range(low, high, unit) {
  const [a, b] = [withUnit(low, unit), withUnit(high, unit)].map(s => s.split("\u00a0"));
  return a[1] === b[1] ? `${a[0]} to ${b[0]}\u00a0${b[1]}` : `${a.join("\u00a0")} to ${b.join("\u00a0")}`;
}

export const gib = bytes => `${digits(bytes / 2 ** 30)}\u00a0GiB`;

/** A change against the default, in percent. */
export function change(ratio) {
  const percent = Math.round((ratio - 1) * 100);
  return percent === 0 ? "±0\u00a0%" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)}\u00a0%`;
}

/** Settings as the command types them, in words. */
export const settings = text => text.replace(/--clock (\d+)/, "$1\u00a0MHz").replace(/--power-cap (\d+)/, "$1\u00a0W").replace(", does not fit", "");
