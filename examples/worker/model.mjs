/** Stands for a model: the same words for the same prompt, so that a test knows the whole answer. */
export function answerTo(prompt) {
  const words = [`“${prompt}”`, " is", " a", " good", " question.\n"];
  for (let step = 1; step <= 20; step += 1)
    words.push(` ${step}`, " 🐳", step % 5 === 0 ? ".\n" : ",");
  return [...words, " That", " is", " all."];
}
