// Shows the OpenAPI document, which /docs/openapi.js has put into a variable: this page can fetch
// nothing. It only documents: no call can be tried out here, so it never needs a key.
globalThis.SwaggerUIBundle({
  spec: globalThis.isoletOpenapi,
  dom_id: "#reference",
  presets: [globalThis.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: false,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: false,
  filter: true,
  supportedSubmitMethods: [],
  tryItOutEnabled: false,
  validatorUrl: null,
});
