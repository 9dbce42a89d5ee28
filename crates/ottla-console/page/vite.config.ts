import { defineConfig } from "vite";

/** The server to develop against: a running console, or the mock of `npm run mock`. */
const server = process.env["CONSOLE"] ?? "http://127.0.0.1:9711";

export default defineConfig({
  publicDir: "public",
  build: {
    outDir: "../assets",
    emptyOutDir: true,
    target: "es2022",
    // The server compresses, and the bytes must not depend on the machine.
    reportCompressedSize: false,
    // A data: URL would need an exception in the content security policy.
    assetsInlineLimit: 0,
    // The licences of what is in the built files, beside them.
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        // Names without a hash: the server sends an ETag, and a change shows as a change of the same file.
        entryFileNames: "console.js",
        chunkFileNames: (chunk) => (chunk.name.startsWith("uPlot") ? "plot.js" : "[name].js"),
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith(".css")) ? "console.css" : "[name][extname]"),
      },
    },
  },
  server: { port: 9710, proxy: { "/api": server } },
});
