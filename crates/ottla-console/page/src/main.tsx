import "uplot/dist/uPlot.min.css";
import "./style.css";

import { render } from "preact";

import { follow } from "./address";
import { listen } from "./keys";
import { Shell } from "./shell";

follow();
listen();
const page = document.getElementById("page")!;
page.textContent = "";
render(<Shell />, page);
