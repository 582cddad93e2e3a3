/* Small comforts; every page works without this file. */
(function () {
  "use strict";
  /* A printed page shows what its opened figures would show on screen. */
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details.how").forEach(function (item) { item.open = true; });
  });
})();
