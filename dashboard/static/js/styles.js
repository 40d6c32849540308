// Loaded before Plotly, which writes `style` attributes: the policy forbids these, but allows CSSOM.
"use strict";
{
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style" && this.style) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
}
