"use strict";

// A browser's session is not enough to change anything: the token of this page goes with every request.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  operationsSorter: "alpha",
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["x-csrf-token"] = document.getElementById("api").dataset.token;
    return request;
  },
});
