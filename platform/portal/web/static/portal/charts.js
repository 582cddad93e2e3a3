/* Draws every <div data-chart="id"> from the JSON of <script type="application/json" id="id">.
   Colours come from the page's own tokens, so a chart follows light and dark like the text does.
   A trace names a role ("accent", "ember", "soft", "good", "bad"); no figure carries a colour. */
(function () {
  "use strict";

  function token(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function paint(value, key) {
    if (Array.isArray(value)) {
      return value.map(function (item) { return paint(item, key); });
    }
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(function (pair) {
        return [pair[0], paint(pair[1], pair[0])];
      }));
    }
    if (typeof value === "string" && value.startsWith("role:")) {
      return token({ soft: "ink-soft", ink: "ink", line: "line-strong" }[value.slice(5)] || value.slice(5));
    }
    return value;
  }

  function draw(target) {
    var source = document.getElementById(target.dataset.chart);
    if (!source || !window.Plotly) { return; }
    var figure = paint(JSON.parse(source.textContent), "");
    var axis = { gridcolor: token("line"), linecolor: token("line-strong"), zerolinecolor: token("line-strong"), automargin: true };
    var layout = Object.assign({}, figure.layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 14, color: token("ink") },
      autosize: true,
      margin: Object.assign({ l: 56, r: 16, t: 16, b: 48 }, figure.layout.margin || {}),
    });
    ["xaxis", "yaxis"].forEach(function (name) {
      var given = figure.layout[name] || {};
      var title = Object.assign({ font: { size: 14 }, standoff: 12 }, given.title || {});
      layout[name] = Object.assign({}, axis, given, { title: title });
    });
    window.Plotly.react(target, figure.data, layout, {
      responsive: true, displaylogo: false, displayModeBar: false, showSendToCloud: false,
    });
  }

  function drawAll() { document.querySelectorAll("[data-chart]").forEach(draw); }

  document.addEventListener("DOMContentLoaded", drawAll);
  document.addEventListener("htmx:afterSwap", drawAll);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
