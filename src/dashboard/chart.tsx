/** A chart of the last minutes, with the values under the pointer, or the latest ones. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { theme } from "./theme.ts";
import { useShared } from "./store.ts";

export interface Line {
  readonly name: string;
  /** A colour of the style, such as `--line-1`. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
  readonly isFilled?: boolean;
}

const HEIGHT = 170;
/** What the time of day takes, in every language. */
const LABEL_PX = 72;

/** Between two labels of time, in seconds. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];

/** Between two labels of what is counted: half a reader is none. */
export const COUNT_STEPS: readonly number[] = [0, 1, 2, 3, 4, 5, 6].flatMap((power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
);

/** Between two labels of bytes: half, one or two of a unit, and not the 0.98 KiB that a thousand bytes are. */
export const BYTE_STEPS: readonly number[] = Array.from({ length: 50 }, (_, power) => 2 ** power);

function colourOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(
  lines: readonly Line[],
  width: number,
  format: (value: number) => string,
  steps: readonly number[] | undefined,
  onPoint: (index: number | undefined) => void,
): uPlot.Options {
  const [ink, rule] = [colourOf("--soft"), colourOf("--line")];
  const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  return {
    width,
    height: HEIGHT,
    padding: [10, 6, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 7 } },
    scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
    axes: [
      {
        ...axis,
        font,
        size: 32,
        gap: 9,
        grid: { show: false },
        space: 90,
        // Whole seconds: the labels have no parts of them.
        incrs: SECONDS,
        // A label at the end would be cut off by the edge of the picture.
        values: (plot, splits) =>
          splits.map((seconds) =>
            plot.valToPos(seconds, "x") > plot.over.clientWidth - LABEL_PX / 2
              ? ""
              : new Date(seconds * 1000).toLocaleTimeString(),
          ),
      },
      {
        ...axis,
        font,
        size: 62,
        space: 34,
        ...(steps === undefined ? {} : { incrs: [...steps] }),
        values: (_plot, splits) =>
          // Two lines with the same words say nothing.
          splits.map((value, at) =>
            at > 0 && format(value) === format(splits[at - 1] ?? 0) ? "" : format(value),
          ),
      },
    ],
    series: [
      {},
      ...lines.map(({ name, colour, isFilled = false }) => ({
        label: name,
        stroke: colourOf(colour),
        width: 2,
        points: { show: false },
        ...(isFilled ? { fill: `${colourOf(colour)}22` } : {}),
      })),
    ],
    hooks: {
      setCursor: [
        ({ cursor }) => {
          onPoint(cursor.idx ?? undefined);
        },
      ],
    },
  };
}

export function Chart(props: {
  title: string;
  seconds: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
  /** What may be between two labels. Round numbers unless it is given. */
  steps?: readonly number[];
}) {
  const { title, seconds, lines, format, steps } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [point, setPoint] = useState<number | undefined>(undefined);
  const colours = useShared(theme);
  const data = [[...seconds], ...lines.map(({ values }) => [...values])] as uPlot.AlignedData;
  // One point is no line, and has no scale.
  const isLine = seconds.length > 1;
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const parent = box.current;
    if (parent === null || !isLine) return undefined;
    const options = optionsOf(lines, parent.clientWidth, format, steps, setPoint);
    const made = new uPlot(options, latest.current, parent);
    plot.current = made;
    const watch = new ResizeObserver(() => {
      made.setSize({ width: parent.clientWidth, height: HEIGHT });
    });
    watch.observe(parent);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
    // The lines of a chart are always the same; their values come below.
  }, [colours, isLine]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [seconds]);
  const shown = (values: Line["values"]): string => {
    const value = point === undefined ? values.at(-1) : values[point];
    return value === undefined || value === null ? "–" : format(value);
  };
  const words = lines.map(({ name, values }) => `${name} ${shown(values)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <span class="title">{title}</span>
        {lines.map(({ name, colour, values }) => (
          <span key={name} class={`key ${colour.slice(2)}`}>
            {name} <b>{shown(values)}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} class="plot" role="img" aria-label={`${title}: ${words}`} />
    </figure>
  );
}
