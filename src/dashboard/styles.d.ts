/** Styles are no values: the bundler collects them in one file. */
declare module "*.css";
